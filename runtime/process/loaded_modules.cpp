#include "troupe/runtime/process/loaded_modules.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

#include <elf.h>
#include <link.h>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {

namespace {

std::size_t padded(std::size_t size) {
  return (size + 3) & ~std::size_t{3};
}

/// Finds the build id among the notes in *size* bytes at *notes*.
std::string build_id_in(const unsigned char* notes, std::size_t size) {
  std::string result;
  while (result.empty() && size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) head;
    std::memcpy(&head, notes, sizeof(head));
    auto* name = notes + sizeof(head);
    auto* text = name + padded(head.n_namesz);
    auto whole = sizeof(head) + padded(head.n_namesz) + padded(head.n_descsz);
    if (whole > size)
      break;
    if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4
        && std::memcmp(name, "GNU", 4) == 0)
      append_hex(result, {reinterpret_cast<const char*>(text), head.n_descsz});
    notes += whole;
    size -= whole;
  }
  return result;
}

/// Whether the bytes of *part* are in memory.
bool is_loaded(const dl_phdr_info& info, const ElfW(Phdr) & part) {
  std::span parts{info.dlpi_phdr, info.dlpi_phnum};
  return std::ranges::any_of(parts, [&](const auto& x) {
    return x.p_type == PT_LOAD && x.p_vaddr <= part.p_vaddr
           && part.p_vaddr + part.p_filesz <= x.p_vaddr + x.p_filesz;
  });
}

loaded_module read_module(const dl_phdr_info& info) {
  loaded_module result;
  result.path = info.dlpi_name ? info.dlpi_name : "";
  result.base = info.dlpi_addr;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const auto& part = info.dlpi_phdr[i];
    auto from = info.dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_LOAD && (part.p_flags & PF_X) != 0)
      result.code.emplace_back(from, from + part.p_memsz);
    if (part.p_type == PT_NOTE && result.build_id.empty()
        && is_loaded(info, part))
      result.build_id = build_id_in(
        reinterpret_cast<const unsigned char*>(from), part.p_filesz);
  }
  return result;
}

} // namespace

bool loaded_module::has_code_at(std::uint64_t address) const {
  for (auto [from, to] : code)
    if (address >= from && address < to)
      return true;
  return false;
}

void visit_modules(const std::function<bool(loaded_module)>& visit) {
  ::dl_iterate_phdr(
    [](dl_phdr_info* info, std::size_t, void* data) {
      auto& f = *static_cast<const std::function<bool(loaded_module)>*>(data);
      return f(read_module(*info)) ? 0 : 1;
    },
    const_cast<std::function<bool(loaded_module)>*>(&visit));
}

std::map<std::string, std::string> library_builds() {
  std::map<std::string, std::string> result;
  visit_modules([&](const loaded_module& x) {
    auto name = x.path.substr(x.path.rfind('/') + 1);
    for (std::string_view prefix : {"libcaf_", "libtorch", "libc10"})
      if (name.starts_with(prefix))
        result.emplace(name, x.build_id);
    return true;
  });
  return result;
}

} // namespace troupe::internal
