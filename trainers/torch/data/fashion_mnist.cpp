#include "troupe/trainers/torch/data/fashion_mnist.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>
#include <zlib.h>

#include "troupe/runtime/error.hpp"
#include "troupe/runtime/fs.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe {

using namespace internal;

struct fashion_mnist::bytes {
  std::vector<std::uint8_t> images; // 784 per sample
  std::vector<std::uint8_t> labels;
};

namespace {

/// The bytes of a gzip file in IDX format: a magic number, one size per
/// dimension, then unsigned bytes.
struct idx_file {
  std::vector<std::uint32_t> sizes; ///< One per dimension.
  std::vector<std::uint8_t> data;   ///< As many as the product of the sizes.

  /// Reads *path*, which must hold *dimensions* dimensions and at most
  /// *max_items* items of at most *max_item_bytes* bytes each.
  static expected<idx_file> read(const fs::path& path, int dimensions,
                                 std::uint32_t max_items,
                                 std::uint64_t max_item_bytes);
};

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
      auto part = std::min<std::size_t>(n, 1u << 30);
      auto got = gzread(file_.get(), to, static_cast<unsigned>(part));
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
    auto got = gzread(file_.get(), &byte, 1);
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
    return corrupt(c10::str("its magic number ", big_endian(word),
                            " is not that of an IDX file with ", dimensions,
                            " dimensions of bytes"));
  idx_file result;
  std::uint64_t item_bytes = 1;
  for (int i = 0; i < dimensions; ++i) {
    if (!in.read(word, sizeof(word)))
      return corrupt(in.failure());
    auto size = big_endian(word);
    auto too_large =
      i == 0 ? size > max_items : size > max_item_bytes / item_bytes;
    if (too_large || size == 0)
      return corrupt(c10::str("a dimension of ", size, " is out of range"));
    if (i > 0)
      item_bytes *= size;
    result.sizes.push_back(size);
  }
  result.data.resize(result.sizes.front() * item_bytes);
  if (!in.read(result.data.data(), result.data.size()))
    return corrupt(in.failure());
  if (!in.at_end())
    return corrupt(
      c10::str("it does not end well after ", result.sizes.front(), " items"));
  return result;
}

constexpr std::int64_t side = 28;
constexpr std::int64_t pixels = side * side;
constexpr std::uint32_t max_samples = 60'000;
constexpr std::uint8_t classes = 10;

/// What each byte of an image becomes.
constexpr auto normalized = [] {
  std::array<float, 256> result{};
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = (static_cast<float>(i) / 255.0f - 0.5f) / 0.5f;
  return result;
}();

[[noreturn]] void refuse_data(ec code, const std::string& why) {
  throw train_error{
    {code, why + " (Debian's package dataset-fashion-mnist has the files)"}};
}

idx_file read(const fs::path& path, int dimensions) {
  auto file = idx_file::read(path, dimensions, max_samples, pixels);
  if (!file)
    refuse_data(file.error().code, file.error().message);
  return std::move(*file);
}

} // namespace

const fs::path& fashion_mnist::default_root() {
  static const fs::path result{"/usr/share/datasets/fashion-mnist"};
  return result;
}

fashion_mnist::fashion_mnist(const fs::path& root, split part) {
  const std::string name = part == split::train ? "train" : "t10k";
  auto images_path = root / (name + "-images-idx3-ubyte.gz");
  auto labels_path = root / (name + "-labels-idx1-ubyte.gz");
  auto images = read(images_path, 3);
  auto labels = read(labels_path, 1);
  auto damaged = [](const fs::path& path, const std::string& why) {
    refuse_data(ec::corrupt, path.string() + " is damaged: " + why);
  };
  if (images.sizes[1] != side || images.sizes[2] != side)
    damaged(images_path, "its images are not 28 by 28");
  if (images.sizes[0] != labels.sizes[0])
    damaged(labels_path, c10::str(labels.sizes[0], " labels for ",
                                  images.sizes[0], " images"));
  if (std::ranges::any_of(labels.data, [](auto x) { return x >= classes; }))
    damaged(labels_path, "a label is above 9");
  bytes_ = std::make_shared<const bytes>(
    bytes{std::move(images.data), std::move(labels.data)});
}

std::int64_t fashion_mnist::size() const noexcept {
  return static_cast<std::int64_t>(bytes_->labels.size());
}

fashion_mnist::sample fashion_mnist::get(std::int64_t index) const {
  auto [image, label] = get_batch({&index, 1});
  return {image.squeeze(0), label.squeeze(0)};
}

fashion_mnist::sample
fashion_mnist::get_batch(std::span<const std::int64_t> indices) const {
  auto n = static_cast<std::int64_t>(indices.size());
  auto images = at::empty({n, 1, side, side}, at::kFloat);
  auto labels = at::empty({n}, at::kLong);
  auto* image = images.data_ptr<float>();
  auto* label = labels.data_ptr<std::int64_t>();
  for (auto index : indices) {
    *label++ = bytes_->labels.at(static_cast<std::size_t>(index));
    const auto* from = bytes_->images.data() + index * pixels;
    image = std::transform(from, from + pixels, image,
                           [](auto x) { return normalized[x]; });
  }
  return {std::move(images), std::move(labels)};
}

} // namespace troupe
