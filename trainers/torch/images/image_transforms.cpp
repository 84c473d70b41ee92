#include "troupe/trainers/torch/images/image_transforms.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>

#include "troupe/trainers/torch/throw_invalid_argument.hpp"

namespace troupe {

using namespace internal;

namespace {

/// Of an image that is made: from a strip of one pixel's width any size would
/// follow.
constexpr auto max_made_pixels = std::int64_t{1} << 28;

/// Uniform in [*least*, *most*).
double uniform(at::Generator& random, double least, double most) {
  auto engine = at::check_generator<at::CPUGeneratorImpl>(random);
  auto unit = static_cast<double>(engine->random64() >> 11) * 0x1p-53;
  return least + unit * (most - least);
}

/// One of 0 to *most*.
std::int64_t below_or_at(at::Generator& random, std::int64_t most) {
  auto x = uniform(random, 0, static_cast<double>(most + 1));
  return std::min(static_cast<std::int64_t>(x), most);
}

void check_size(const char* what, std::int64_t size) {
  if (size < 1)
    throw_invalid_argument(what, " was asked for ", size, " pixels");
}

void check_image(const at::Tensor& x) {
  if (!x.defined() || x.dim() != 3 || x.numel() == 0)
    throw_invalid_argument("a transform of images was given a tensor of shape ",
                           x.sizes(), ", not [channels, height, width]");
}

/// Refuses *x* without a *part* of *size* x *size*.
void check_holds(const at::Tensor& x, const char* part, std::int64_t size) {
  if (x.size(1) < size || x.size(2) < size)
    throw_invalid_argument("an image of ", x.size(2), " x ", x.size(1),
                           " pixels has no ", part, " of ", size, " x ", size,
                           ": resize it first");
}

at::Tensor resized(const at::Tensor& x, std::int64_t height,
                   std::int64_t width) {
  if (x.size(1) == height && x.size(2) == width)
    return x;
  if (height > max_made_pixels / width)
    throw_invalid_argument("an image of ", x.size(2), " x ", x.size(1),
                           " pixels would become one of ", width, " x ", height,
                           ", which is too large");
  return at::_upsample_bilinear2d_aa(x.unsqueeze(0), {height, width}, false)
    .squeeze(0);
}

struct area {
  std::int64_t top, left, height, width;

  at::Tensor of(const at::Tensor& x) const {
    return x.narrow(1, top, height).narrow(2, left, width);
  }
};

/// In the middle; halves are rounded to even numbers, as in Python.
area middle(const at::Tensor& x, std::int64_t height, std::int64_t width) {
  auto first = [](std::int64_t all, std::int64_t part) {
    return static_cast<std::int64_t>(
      std::nearbyint(static_cast<double>(all - part) / 2));
  };
  return {first(x.size(1), height), first(x.size(2), width), height, width};
}

/// The middle, as far as its ratio is allowed.
area widest(const at::Tensor& x, const crop_options& how) {
  auto height = static_cast<double>(x.size(1));
  auto width = static_cast<double>(x.size(2));
  if (width / height < how.ratio[0])
    height = std::nearbyint(width / how.ratio[0]);
  else if (width / height > how.ratio[1])
    width = std::nearbyint(height * how.ratio[1]);
  return middle(x, std::max<std::int64_t>(std::int64_t(height), 1),
                std::max<std::int64_t>(std::int64_t(width), 1));
}

area random_square(const at::Tensor& x, std::int64_t size,
                   at::Generator& random) {
  auto top = below_or_at(random, x.size(1) - size);
  auto left = below_or_at(random, x.size(2) - size);
  return {top, left, size, size};
}

area random_area(const at::Tensor& x, const crop_options& how,
                 at::Generator& random) {
  auto all = static_cast<double>(x.size(1) * x.size(2));
  for (int attempt = 0; attempt < 10; ++attempt) {
    auto size = all * uniform(random, how.scale[0], how.scale[1]);
    auto ratio =
      std::exp(uniform(random, std::log(how.ratio[0]), std::log(how.ratio[1])));
    auto width = std::llrint(std::sqrt(size * ratio));
    auto height = std::llrint(std::sqrt(size / ratio));
    if (width < 1 || width > x.size(2) || height < 1 || height > x.size(1))
      continue;
    auto top = below_or_at(random, x.size(1) - height);
    auto left = below_or_at(random, x.size(2) - width);
    return {top, left, height, width};
  }
  return widest(x, how);
}

} // namespace

image_transform::image_transform(std::initializer_list<image_transform> steps) {
  for (auto& one : steps)
    steps_.insert(steps_.end(), one.steps_.begin(), one.steps_.end());
}

at::Tensor image_transform::operator()(at::Tensor image,
                                       at::Generator& random) const {
  for (auto& step : steps_)
    image = step(std::move(image), random);
  return image;
}

image_transform resize(std::int64_t size) {
  check_size("resize", size);
  return {[size](at::Tensor x, at::Generator&) {
    check_image(x);
    auto shorter = std::min(x.size(1), x.size(2));
    auto part = [&](std::int64_t side) { return size * side / shorter; };
    return resized(x, part(x.size(1)), part(x.size(2)));
  }};
}

image_transform resize(std::int64_t height, std::int64_t width) {
  check_size("resize", std::min(height, width));
  return {[height, width](at::Tensor x, at::Generator&) {
    check_image(x);
    return resized(x, height, width);
  }};
}

image_transform center_crop(std::int64_t size) {
  check_size("center_crop", size);
  return {[size](at::Tensor x, at::Generator&) {
    check_image(x);
    check_holds(x, "middle", size);
    return middle(x, size, size).of(x);
  }};
}

image_transform random_crop(std::int64_t size, std::int64_t padding) {
  check_size("random_crop", size);
  if (padding < 0)
    throw_invalid_argument("random_crop was asked for a padding of ", padding,
                           " pixels");
  return {[size, padding](at::Tensor x, at::Generator& random) {
    check_image(x);
    if (padding > 0)
      x = at::constant_pad_nd(x, {padding, padding, padding, padding});
    check_holds(x, "part", size);
    return random_square(x, size, random).of(x);
  }};
}

image_transform random_resized_crop(std::int64_t size, crop_options how) {
  check_size("random_resized_crop", size);
  if (!(how.scale[0] > 0 && how.scale[0] <= how.scale[1] && how.scale[1] <= 1))
    throw_invalid_argument("random_resized_crop was asked for parts of ",
                           how.scale[0], " to ", how.scale[1], " of the area");
  if (!(how.ratio[0] > 0 && how.ratio[0] <= how.ratio[1]
        && std::isfinite(how.ratio[1])))
    throw_invalid_argument("random_resized_crop was asked for ratios of ",
                           how.ratio[0], " to ", how.ratio[1]);
  return {[size, how](at::Tensor x, at::Generator& random) {
    check_image(x);
    return resized(random_area(x, how, random).of(x), size, size);
  }};
}

image_transform random_horizontal_flip(double probability) {
  if (!(probability >= 0 && probability <= 1))
    throw_invalid_argument("random_horizontal_flip was given the probability ",
                           probability);
  return {[probability](at::Tensor x, at::Generator& random) {
    check_image(x);
    return uniform(random, 0, 1) < probability ? x.flip(2) : x;
  }};
}

image_transform to_float() {
  return {[](at::Tensor x, at::Generator&) {
    check_image(x);
    if (x.scalar_type() == at::kByte)
      return x.to(at::kFloat).div_(255);
    if (x.scalar_type() == at::kFloat)
      return x;
    throw_invalid_argument("to_float takes uint8 and float32, not ",
                           x.scalar_type());
  }};
}

image_transform normalize(std::vector<double> mean,
                          std::vector<double> deviation) {
  if (mean.size() != deviation.size() || mean.empty())
    throw_invalid_argument("normalize was given ", mean.size(), " means and ",
                           deviation.size(), " deviations");
  for (auto x : deviation)
    if (!(x > 0))
      throw_invalid_argument("normalize was given the deviation ", x);
  auto column = [](const std::vector<double>& x) {
    return at::tensor(x, at::kFloat).view({-1, 1, 1});
  };
  return {[mean = column(mean), deviation = column(deviation)](at::Tensor x,
                                                               at::Generator&) {
    check_image(x);
    if (x.scalar_type() != at::kFloat || x.size(0) != mean.size(0))
      throw_invalid_argument("normalize was given ", x.scalar_type(),
                             " of shape ", x.sizes(), ", not float32 of ",
                             mean.size(0), " channels: to_float comes before");
    return x.sub(mean).div_(deviation);
  }};
}

} // namespace troupe
