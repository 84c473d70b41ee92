#include "troupe/trainers/torch/data/idx_file.hpp"

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include <zlib.h>

namespace troupe {

namespace {

/// A gzip file that is being read.
class gzip_reader {
public:
  explicit gzip_reader(const fs::path& path)
    : file_(gzopen(path.c_str(), "rbe"), &gzclose_r) {}

  bool is_open() const noexcept { return file_ != nullptr; }

  /// Reads exactly *n* bytes.
  bool read(void* target, std::size_t n) {
    auto* to = static_cast<char*>(target);
    while (n > 0) {
      // The limit of one call is that of an int.
      const auto part = std::min<std::size_t>(n, 1u << 30);
      const auto got = gzread(file_.get(), to, static_cast<unsigned>(part));
      if (got <= 0)
        return false;
      to += got;
      n -= static_cast<std::size_t>(got);
    }
    return true;
  }

  /// Whether the stream ends here, with the right checksum.
  bool at_end() {
    char byte;
    int code = Z_OK;
    const auto got = gzread(file_.get(), &byte, 1);
    gzerror(file_.get(), &code); // a cut archive reads as an end, too
    return got == 0 && code == Z_OK;
  }

  std::string failure() {
    int code = Z_OK;
    const auto* text = gzerror(file_.get(), &code);
    return code == Z_OK ? std::string{"it is too short"} : std::string{text};
  }

private:
  std::unique_ptr<gzFile_s, decltype(&gzclose_r)> file_;
};

std::uint32_t big_endian(const std::uint8_t* x) noexcept {
  return std::uint32_t{x[0]} << 24 | std::uint32_t{x[1]} << 16
         | std::uint32_t{x[2]} << 8 | std::uint32_t{x[3]};
}

} // namespace

expected<idx_file> idx_file::read(const fs::path& path, int dimensions,
                                  std::uint32_t max_items,
                                  std::uint64_t max_item_bytes) {
  auto corrupt = [&](const std::string& why) {
    return failure(ec::corrupt, path.string() + " is damaged: " + why);
  };
  gzip_reader in{path};
  if (!in.is_open())
    return failure(ec::storage,
                   path.string() + " cannot be read: " + std::strerror(errno));
  std::uint8_t word[4];
  if (!in.read(word, sizeof(word)))
    return corrupt(in.failure());
  constexpr std::uint32_t unsigned_bytes = 0x0800;
  if (big_endian(word)
      != (unsigned_bytes | static_cast<std::uint32_t>(dimensions)))
    return corrupt("its magic number " + std::to_string(big_endian(word))
                   + " is not that of an IDX file with "
                   + std::to_string(dimensions) + " dimensions of bytes");
  idx_file result;
  std::uint64_t item_bytes = 1;
  for (int i = 0; i < dimensions; ++i) {
    if (!in.read(word, sizeof(word)))
      return corrupt(in.failure());
    const auto size = big_endian(word);
    const auto too_large =
      i == 0 ? size > max_items : size > max_item_bytes / item_bytes;
    if (too_large || size == 0)
      return corrupt("a dimension of " + std::to_string(size)
                     + " is out of range");
    if (i > 0)
      item_bytes *= size;
    result.sizes.push_back(size);
  }
  result.data.resize(result.sizes.front() * item_bytes);
  if (!in.read(result.data.data(), result.data.size()))
    return corrupt(in.failure());
  if (!in.at_end())
    return corrupt("it does not end well after "
                   + std::to_string(result.sizes.front()) + " items");
  return result;
}

} // namespace troupe
