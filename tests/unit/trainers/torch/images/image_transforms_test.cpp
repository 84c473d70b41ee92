// Transforms of images as those of torchvision and Pillow.

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "tests/unit/trainers/torch/images/image_data.hpp"
#include "troupe/trainers/torch/images/image_file.hpp"
#include "troupe/trainers/torch/images/image_transforms.hpp"

namespace troupe::internal::test {

using testing::HasSubstr;

namespace {

at::Tensor transformed(const image_transform& f, const at::Tensor& x,
                       std::int64_t index = 0) {
  auto random = random_of(index);
  return f(x, random);
}

/// Every pixel is its place: [row, column, 0].
at::Tensor places(std::int64_t height, std::int64_t width) {
  auto rows = at::arange(height, at::kByte).view({-1, 1}).expand({-1, width});
  auto columns = at::arange(width, at::kByte).expand({height, -1});
  return at::stack({rows, columns, at::zeros_like(rows)});
}

} // namespace

TEST(image_transforms_test, resize_as_pillow_does) {
  auto image = read_image(data / "colors.png");
  EXPECT_LE(difference(transformed(resize(8), image),
                       rows_of(data / "resized.rgb", 8, 12)),
            1);
  EXPECT_LE(difference(transformed(resize(20, 31), image),
                       rows_of(data / "enlarged.rgb", 20, 31)),
            1);
  EXPECT_EQ(transformed(resize(14), image).data_ptr(), image.data_ptr());
}

TEST(image_transforms_test, make_no_huge_image_of_a_strip) {
  auto strip = at::zeros({3, 1, 2'000'000}, at::kByte);
  EXPECT_THAT(
    failure_of([&] { transformed(resize(256), strip); }),
    HasSubstr("2000000 x 1 pixels would become one of 512000000 x 256"));
}

TEST(image_transforms_test, cut_the_middle) {
  auto cut = transformed(center_crop(3), places(6, 9));
  EXPECT_TRUE(cut[0].select(1, 0).equal(at::tensor({2, 3, 4}, at::kByte)));
  EXPECT_TRUE(cut[1][0].equal(at::tensor({3, 4, 5}, at::kByte)));
  EXPECT_THAT(failure_of([] { transformed(center_crop(7), places(6, 9)); }),
              HasSubstr("9 x 6 pixels has no middle of 7 x 7"));
}

TEST(image_transforms_test, flip_about_as_often_as_asked) {
  auto image = places(1, 2);
  int flipped = 0;
  for (int i = 0; i < 400; ++i)
    flipped +=
      transformed(random_horizontal_flip(0.25), image, i)[1][0][0].item<int>();
  EXPECT_NEAR(flipped, 100, 40);
  EXPECT_TRUE(
    transformed(random_horizontal_flip(1), image).equal(image.flip({2})));
  EXPECT_TRUE(transformed(random_horizontal_flip(0), image).equal(image));
}

TEST(image_transforms_test, cut_random_parts_of_the_area_and_ratio_asked_for) {
  // Whatever was cut, its corners tell where.
  auto image = places(100, 200);
  std::set<std::pair<int, int>> corners;
  for (int i = 0; i < 50; ++i) {
    auto cut =
      transformed(random_resized_crop(4, {{0.25, 0.25}, {1, 1}}), image, i);
    EXPECT_EQ(cut.sizes(), (std::vector<std::int64_t>{3, 4, 4}));
    // A square of 5000 pixels has sides of 71.
    auto down = cut[0][3][0].item<int>() - cut[0][0][0].item<int>();
    auto right = cut[1][0][3].item<int>() - cut[1][0][0].item<int>();
    EXPECT_NEAR(down, 71 * 3 / 4, 6);
    EXPECT_NEAR(right, 71 * 3 / 4, 6);
    corners.emplace(cut[0][0][0].item<int>(), cut[1][0][0].item<int>());
  }
  EXPECT_GT(corners.size(), 40u);
  // No such part fits into a strip: the middle of it instead.
  auto strip =
    transformed(random_resized_crop(4, {{1, 1}, {1, 1}}), places(4, 100));
  EXPECT_TRUE(strip.equal(transformed(center_crop(4), places(4, 100))));
}

TEST(image_transforms_test, cut_squares_of_the_padded_image_as_pillow_pads_it) {
  auto image = read_image(data / "colors.png");
  auto padded = rows_of(data / "padded.rgb", 22, 29);
  auto place_of = [&](const at::Tensor& cut) {
    for (int top = 0; top <= 22 - 14; ++top)
      for (int left = 0; left <= 29 - 14; ++left)
        if (padded.narrow(1, top, 14).narrow(2, left, 14).equal(cut))
          return std::pair{top, left};
    ADD_FAILURE() << "not a part of the padded image";
    return std::pair{-1, -1};
  };
  std::set<int> tops, lefts;
  for (int i = 0; i < 300; ++i) {
    auto [top, left] = place_of(transformed(random_crop(14, 4), image, i));
    tops.insert(top);
    lefts.insert(left);
  }
  EXPECT_EQ(tops.size(), 9u);
  EXPECT_EQ(lefts.size(), 16u);
  EXPECT_TRUE(transformed(random_crop(14, 4), image, 7)
                .equal(transformed(random_crop(14, 4), image, 7)));
  // Without padding, and where there is one place only.
  EXPECT_TRUE(transformed(random_crop(4), places(4, 4)).equal(places(4, 4)));
  EXPECT_THAT(failure_of([] { transformed(random_crop(11, 2), places(6, 9)); }),
              HasSubstr("13 x 10 pixels has no part of 11 x 11"));
}

TEST(image_transforms_test, take_a_function_that_draws_from_the_generator) {
  auto brightness = [](const at::Tensor& x, at::Generator& random) {
    return (x * at::empty({1}).uniform_(0.6, 1.4, random)).clamp_(0, 1);
  };
  auto image = at::full({3, 2, 2}, 102, at::kByte);
  std::set<float> seen;
  for (int i = 0; i < 50; ++i) {
    auto result = transformed({to_float(), brightness}, image, i);
    EXPECT_TRUE(result.equal(transformed({to_float(), brightness}, image, i)));
    seen.insert(result[0][0][0].item<float>());
  }
  EXPECT_GT(seen.size(), 40u);
  EXPECT_GE(*seen.begin(), 0.4f * 0.6f);
  EXPECT_LE(*seen.rbegin(), 0.4f * 1.4f);
}

TEST(image_transforms_test, scale_and_normalize) {
  auto image = at::full({2, 1, 1}, 51, at::kByte);
  auto result = transformed({to_float(), normalize({0.1, 0}, {0.5, 2})}, image);
  EXPECT_NEAR(result[0].item<double>(), 0.2, 1e-6);
  EXPECT_NEAR(result[1].item<double>(), 0.1, 1e-6);
  auto own = [](const at::Tensor& x, at::Generator&) { return x.add(1); };
  EXPECT_EQ(transformed({own, own}, image)[0].item<int>(), 53);
}

TEST(image_transforms_test, refuse_what_cannot_work) {
  EXPECT_THROW(resize(0), train_error);
  EXPECT_THROW(center_crop(-1), train_error);
  EXPECT_THROW(random_crop(0), train_error);
  EXPECT_THROW(random_crop(8, -1), train_error);
  EXPECT_THROW(random_resized_crop(8, {{0, 1}}), train_error);
  EXPECT_THROW(random_resized_crop(8, {{0.1, 1}, {2, 1}}), train_error);
  EXPECT_THROW(random_horizontal_flip(1.5), train_error);
  EXPECT_THROW(normalize({1}, {1, 1}), train_error);
  EXPECT_THROW(normalize({1}, {0}), train_error);
  auto bytes = places(2, 2);
  EXPECT_THROW(transformed(normalize({0, 0, 0}, {1, 1, 1}), bytes),
               train_error);
  EXPECT_THROW(transformed(resize(2), at::ones({2, 2})), train_error);
}

} // namespace troupe::internal::test
