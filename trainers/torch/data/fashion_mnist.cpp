#include "troupe/trainers/torch/data/fashion_mnist.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>

#include "troupe/trainers/torch/data/idx_file.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe {

struct fashion_mnist::bytes {
  std::vector<std::uint8_t> images; // 784 per sample
  std::vector<std::uint8_t> labels;
};

namespace {

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
  const auto images_path = root / (name + "-images-idx3-ubyte.gz");
  const auto labels_path = root / (name + "-labels-idx1-ubyte.gz");
  auto images = read(images_path, 3);
  auto labels = read(labels_path, 1);
  auto damaged = [](const fs::path& path, const std::string& why) {
    refuse_data(ec::corrupt, path.string() + " is damaged: " + why);
  };
  if (images.sizes[1] != side || images.sizes[2] != side)
    damaged(images_path, "its images are not 28 by 28");
  if (images.sizes[0] != labels.sizes[0])
    damaged(labels_path, std::to_string(labels.sizes[0]) + " labels for "
                           + std::to_string(images.sizes[0]) + " images");
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
  const auto n = static_cast<std::int64_t>(indices.size());
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
