#include "troupe/runtime/process/symbol_table.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <utility>

namespace troupe {

namespace {

/// A structure at *bytes*, which need not be aligned.
template <class T>
T read_at(const char* bytes) noexcept {
  T result;
  std::memcpy(&result, bytes, sizeof(T));
  return result;
}

} // namespace

bool symbol_table::open(const char* path, const void* base) noexcept {
  close();
  int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return false;
  struct stat status {};
  void* memory = MAP_FAILED;
  if (::fstat(fd, &status) == 0 && status.st_size > 0)
    memory = ::mmap(nullptr, static_cast<std::size_t>(status.st_size),
                    PROT_READ, MAP_PRIVATE, fd, 0);
  ::close(fd);
  if (memory == MAP_FAILED)
    return false;
  file_ = static_cast<char*>(memory);
  size_ = static_cast<std::size_t>(status.st_size);
  base_ = reinterpret_cast<std::uint64_t>(base);
  if (read_sections())
    return true;
  close();
  return false;
}

bool symbol_table::read_sections() noexcept {
  auto* start = at(0, sizeof(Elf64_Ehdr));
  if (!start || std::memcmp(start, ELFMAG, SELFMAG) != 0
      || start[EI_CLASS] != ELFCLASS64)
    return false;
  auto header = read_at<Elf64_Ehdr>(start);
  if (header.e_type != ET_DYN)
    base_ = 0; // Its addresses are those in memory.
  auto section = [&](std::uint64_t i) {
    auto* bytes =
      at(header.e_shoff + i * header.e_shentsize, sizeof(Elf64_Shdr));
    return bytes && i < header.e_shnum ? read_at<Elf64_Shdr>(bytes)
                                       : Elf64_Shdr{};
  };
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    auto table = section(i);
    if (table.sh_type != SHT_SYMTAB)
      continue;
    auto texts = section(table.sh_link);
    auto* names = at(texts.sh_offset, texts.sh_size);
    symbols_ = at(table.sh_offset, table.sh_size);
    symbol_count_ = table.sh_size / sizeof(Elf64_Sym);
    if (!symbols_ || !names || texts.sh_size == 0
        || names[texts.sh_size - 1] != '\0')
      return false;
    names_ = {names, texts.sh_size};
    return true;
  }
  return false;
}

symbol_table::function symbol_table::find(const void* address) const noexcept {
  auto wanted = reinterpret_cast<std::uint64_t>(address) - base_;
  for (std::size_t i = 0; i < symbol_count_; ++i) {
    auto x = read_at<Elf64_Sym>(symbols_ + i * sizeof(Elf64_Sym));
    if (ELF64_ST_TYPE(x.st_info) == STT_FUNC && x.st_value <= wanted
        && wanted - x.st_value < x.st_size && x.st_name < names_.size())
      return {names_.data() + x.st_name, wanted - x.st_value};
  }
  return {};
}

void symbol_table::close() noexcept {
  if (file_)
    ::munmap(file_, size_);
  file_ = nullptr;
  size_ = 0;
  symbols_ = nullptr;
  symbol_count_ = 0;
  names_ = {};
}

const char* symbol_table::at(std::uint64_t begin,
                             std::uint64_t size) const noexcept {
  return begin <= size_ && size <= size_ - begin ? file_ + begin : nullptr;
}

} // namespace troupe
