#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

// Transforms of images, as torchvision has them: tensors `[channels, height,
// width]` in, such tensors out. Random ones draw from the generator that they
// are given, so that a sample depends on seed, epoch and index alone. Resizing
// is bilinear with antialiasing. All throw `train_error` for arguments that can
// never work.
namespace troupe {

class image_transform;

namespace internal {

template <class F>
concept transform_itself = std::same_as<F, image_transform>;

/// What becomes an `image_transform`, which is not a step of its own.
template <class F>
concept image_step =
  !transform_itself<F> && std::invocable<const F&, at::Tensor, at::Generator&>;

} // namespace internal

/// One transform, or several, one after the other.
class image_transform {
public:
  using function = std::function<at::Tensor(at::Tensor, at::Generator&)>;

  /// Changes nothing.
  image_transform() = default;

  /// One of your own.
  template <internal::image_step F>
  image_transform(F f) : steps_{function{std::move(f)}} {}

  image_transform(std::initializer_list<image_transform> steps);

  at::Tensor operator()(at::Tensor image, at::Generator& random) const;

private:
  std::vector<function> steps_;
};

/// The shorter side becomes *size* pixels, the longer one keeps the ratio.
image_transform resize(std::int64_t size);

image_transform resize(std::int64_t height, std::int64_t width);

/// The *size* x *size* pixels in the middle. The image must have them.
image_transform center_crop(std::int64_t size);

/// *size* x *size* pixels at a random place, after *padding* black pixels were
/// added on each side. The padded image must have them.
image_transform random_crop(std::int64_t size, std::int64_t padding = 0);

/// Where `random_resized_crop` cuts.
struct crop_options {
  std::array<double, 2> scale{0.08, 1};        ///< Part of the area.
  std::array<double, 2> ratio{3. / 4, 4. / 3}; ///< Width to height.
};

/// A random part of the image, resized to *size* x *size*.
image_transform random_resized_crop(std::int64_t size, crop_options how = {});

/// Mirrors left and right with *probability*.
image_transform random_horizontal_flip(double probability = 0.5);

/// uint8 from 0 to 255 becomes float32 from 0 to 1; float32 stays.
image_transform to_float();

/// `(x - mean) / deviation` of each channel; of float32 only.
image_transform normalize(std::vector<double> mean,
                          std::vector<double> deviation);

} // namespace troupe
