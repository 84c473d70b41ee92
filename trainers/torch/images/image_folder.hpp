#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "troupe/runtime/fs.hpp"
#include "troupe/trainers/torch/images/image_file.hpp"
#include "troupe/trainers/torch/images/image_transforms.hpp"

namespace troupe {

/// Images in folders, one folder per class, as torchvision's `ImageFolder`:
///
///   root/cat/1.jpg
///   root/dog/2.png
///
/// Classes are numbered in the order of their names, samples in the order of
/// class and path. Files below a class that end in .jpg, .jpeg or .png, in any
/// case, are its images; others are passed over. A map-style dataset; copies
/// share the list of files, and any number of threads may read.
class image_folder {
public:
  /// The image after its transform, uint8 or float32 `[channels, height,
  /// width]`, and the number of its class.
  using sample = std::pair<at::Tensor, std::int64_t>;

  /// Lists the files below *root*. Throws `train_error` that names the folder
  /// if it cannot be read, has no classes, or a class has no images; and a link
  /// to an image that is missing.
  explicit image_folder(const fs::path& root, image_transform transform = {},
                        image_options how = {});

  std::int64_t size() const noexcept;

  /// Throws `train_error` with the path of a file that cannot be read.
  sample get(std::int64_t index, at::Generator random) const;

  /// Names of the classes, by number.
  const std::vector<std::string>& classes() const noexcept;

  fs::path path(std::int64_t index) const;
  std::int64_t label(std::int64_t index) const;

private:
  struct content;

  std::shared_ptr<const content> content_;
  image_transform transform_;
  image_options how_;
};

} // namespace troupe
