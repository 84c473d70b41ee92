#include <cmath>
#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <map>
#include <set>

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tests/support/memory_link.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/trainers/torch/data/data_loader.hpp"
#include "troupe/trainers/torch/images/image_file.hpp"
#include "troupe/trainers/torch/images/image_folder.hpp"
#include "troupe/trainers/torch/images/image_transforms.hpp"

using namespace troupe;
using namespace troupe::internal;
using test::bytes_of;
using test::write_bytes;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

// Made by tools/image_table.py: 21 x 14 pixels, and what Pillow reads.
const fs::path data = TROUPE_TEST_DATA "/images";

/// What Pillow wrote: rows of RGB.
at::Tensor rows_of(const fs::path& path, std::int64_t height,
                   std::int64_t width) {
  auto bytes = bytes_of(path);
  return at::from_blob(bytes.data(), {height, width, 3}, at::kByte)
    .permute({2, 0, 1})
    .clone();
}

/// The largest difference of two values.
int difference(const at::Tensor& x, const at::Tensor& y) {
  EXPECT_EQ(x.sizes(), y.sizes());
  return (x.to(at::kInt) - y.to(at::kInt)).abs().max().item<int>();
}

at::Generator random_of(std::int64_t index) {
  return sample_generators{1, 0}.of(index);
}

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

template <class F>
std::string failure_of(F&& f) {
  try {
    f();
  } catch (const train_error& x) {
    return x.what();
  }
  return "";
}

/// Two classes with three images, and things that are none.
class image_folder_test : public testing::Test {
protected:
  image_folder_test() {
    for (auto name : {"dog", "cat/more"})
      fs::create_directories(root_ / name);
    fs::copy_file(data / "colors.png", root_ / "dog/b.PNG");
    fs::copy_file(data / "colors.jpg", root_ / "dog/a.jpeg");
    fs::copy_file(data / "gray.jpg", root_ / "cat/more/c.jpg");
    write_bytes(root_ / "cat/notes.txt", "none");
    write_bytes(root_ / "labels.csv", "none");
  }

  test::temporary_folder root_;
};

std::string text_of(std::initializer_list<int> bytes) {
  return {bytes.begin(), bytes.end()};
}

std::string big_endian(std::uint32_t x) {
  std::string result;
  for (int shift : {24, 16, 8, 0})
    result += static_cast<char>(x >> shift & 0xff);
  return result;
}

std::string png_chunk(const std::string& type, const std::string& content) {
  auto checked = type + content;
  auto crc = ~std::uint32_t{0};
  for (auto byte : checked) {
    crc ^= static_cast<unsigned char>(byte);
    for (int i = 0; i < 8; ++i)
      crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return big_endian(static_cast<std::uint32_t>(content.size())) + checked
         + big_endian(~crc);
}

/// A PNG file of one row, *pixels* of 16 bits per color.
std::string wide_png(const std::string& pixels) {
  auto row = text_of({0}) + pixels; // 0: without a filter
  std::uint32_t a = 1, b = 0;
  for (auto byte : row) {
    a = (a + static_cast<unsigned char>(byte)) % 65521;
    b = (b + a) % 65521;
  }
  auto size = static_cast<int>(row.size());
  // Stored, not compressed.
  auto stored = text_of({0x78, 0x01, 1, size, 0, 255 - size, 255}) + row
                + big_endian(b << 16 | a);
  auto width = static_cast<std::uint32_t>(pixels.size() / 6);
  return "\x89PNG\r\n\x1a\n"
         + png_chunk("IHDR", big_endian(width) + big_endian(1)
                               + text_of({16, 2, 0, 0, 0}))
         + png_chunk("IDAT", stored) + png_chunk("IEND", "");
}

train_context make_context(int rank = 0, int world_size = 1) {
  return {{.rank = rank, .world_size = world_size},
          test::make_memory_link(),
          std::nullopt};
}

} // namespace

TEST(image_file_test, reads_png_as_pillow_does) {
  for (auto name :
       {"colors", "palette", "gray", "alpha", "gray_alpha", "bits"}) {
    auto path = data / (name + std::string{".png"});
    auto pixels = read_image(path);
    EXPECT_EQ(pixels.scalar_type(), at::kByte);
    EXPECT_TRUE(pixels.is_contiguous());
    EXPECT_EQ(difference(pixels, rows_of(path.string() + ".rgb", 14, 21)), 0)
      << name;
  }
}

TEST(image_file_test, rounds_16_bits_of_a_png_to_8) {
  test::temporary_folder folder;
  write_bytes(folder / "wide.png",
              wide_png(text_of({0x20, 0x10, 0x80, 0, 0xff, 0xff}) // 1st pixel
                       + text_of({0, 0, 0, 0x7f, 0, 0x82})));
  auto expected = at::tensor({32, 0, 128, 0, 255, 1}, at::kByte);
  EXPECT_TRUE(read_image(folder / "wide.png").equal(expected.view({3, 1, 2})));
}

TEST(image_file_test, takes_the_values_of_a_png_for_no_other_color_space) {
  test::temporary_folder folder;
  auto bytes = bytes_of(data / "colors.png");
  constexpr std::size_t after_size = 33; // signature and IHDR
  bytes.insert(after_size, png_chunk("gAMA", big_endian(100000)));
  write_bytes(folder / "linear.png", bytes);
  EXPECT_EQ(difference(read_image(folder / "linear.png"),
                       rows_of(data / "colors.png.rgb", 14, 21)),
            0);
  // A chunk that is cut off.
  write_bytes(folder / "cut.png", bytes.substr(0, after_size + 14));
  EXPECT_NE(failure_of([&] { read_image(folder / "cut.png"); }), "");
}

// Libraries may round in their own ways.
TEST(image_file_test, reads_jpeg_as_pillow_does) {
  for (auto [name, most] : std::map<std::string, int>{
         {"colors", 1}, {"progressive", 1}, {"gray", 1}, {"inks", 2}}) {
    auto path = data / (name + ".jpg");
    EXPECT_LE(
      difference(read_image(path), rows_of(path.string() + ".rgb", 14, 21)),
      most)
      << name;
  }
}

TEST(image_file_test, decodes_parts_of_a_large_jpeg_as_pillows_draft_does) {
  for (auto [name, most] : std::map<std::string, int>{
         {"colors", 1}, {"progressive", 1}, {"gray", 1}, {"inks", 2}}) {
    auto path = data / (name + ".jpg");
    auto part = [&](std::int64_t least) {
      return read_image(path, {.decode_at_least = least});
    };
    auto half = rows_of(path.string() + ".2.rgb", 7, 11);
    EXPECT_LE(difference(part(7), half), most) << name;
    EXPECT_LE(difference(part(5), half), most) << name;
    EXPECT_LE(difference(part(4), rows_of(path.string() + ".4.rgb", 4, 6)),
              most)
      << name;
    EXPECT_EQ(part(1).sizes(), (std::vector<std::int64_t>{3, 2, 3})) << name;
    EXPECT_TRUE(part(8).equal(read_image(path))) << name;
    EXPECT_TRUE(part(100).equal(read_image(path))) << name;
  }
  EXPECT_EQ(read_image(data / "colors.png", {.decode_at_least = 4}).size(1),
            14);
  EXPECT_THAT(failure_of([] {
                read_image(data / "colors.jpg", {.decode_at_least = -1});
              }),
              HasSubstr("decode_at_least is -1"));
}

TEST(image_file_test, refuses_a_size_of_which_only_a_part_would_be_possible) {
  test::temporary_folder folder;
  auto bytes = bytes_of(data / "colors.jpg");
  auto frame = bytes.find("\xff\xc0"); // then 3 bytes, height and width
  ASSERT_NE(frame, std::string::npos);
  bytes.replace(frame + 5, 4, "\xff\xdc\xff\xdc");
  write_bytes(folder / "huge.jpg", bytes);
  EXPECT_THAT(failure_of([&] {
                read_image(folder / "huge.jpg", {.decode_at_least = 1});
              }),
              HasSubstr("65500 x 65500 pixels"));
}

TEST(image_file_test, reads_a_jpeg_with_bytes_that_do_not_matter) {
  test::temporary_folder folder;
  for (auto before : {"\xff\xdb", "\xff\xda", "\xff\xd9"}) {
    auto bytes = bytes_of(data / "colors.jpg");
    bytes.insert(bytes.rfind(before), 2, '\0');
    write_bytes(folder / "more.jpg", bytes);
    EXPECT_TRUE(
      read_image(folder / "more.jpg").equal(read_image(data / "colors.jpg")));
    // Others may follow, whole or not, as in files of several pictures.
    auto begun = bytes_of(data / "progressive.jpg");
    write_bytes(folder / "two.jpg", bytes + begun.substr(0, begun.size() - 40));
    EXPECT_TRUE(
      read_image(folder / "two.jpg").equal(read_image(data / "colors.jpg")));
    write_bytes(folder / "cut.jpg", bytes.substr(0, bytes.size() - 40));
    EXPECT_NE(failure_of([&] { read_image(folder / "cut.jpg"); }), "");
  }
}

TEST(image_file_test, refuses_a_jpeg_that_takes_hours) {
  test::temporary_folder folder;
  auto bytes = bytes_of(data / "progressive.jpg");
  auto last_scan = bytes.rfind("\xff\xda");
  ASSERT_NE(last_scan, std::string::npos);
  auto scan = bytes.substr(last_scan, bytes.size() - 2 - last_scan);
  for (int i = 0; i < 600; ++i)
    bytes.insert(last_scan, scan);
  write_bytes(folder / "scans.jpg", bytes);
  EXPECT_THAT(failure_of([&] { read_image(folder / "scans.jpg"); }),
              HasSubstr("more than 500 scans"));
}

TEST(image_file_test, names_a_file_that_is_not_an_image_and_why) {
  test::temporary_folder folder;
  auto with = [&](const std::string& name, const std::string& bytes) {
    write_bytes(folder / name, bytes);
    return failure_of([&] { read_image(folder / name); });
  };
  EXPECT_THAT(with("a.jpg", "text"),
              AllOf(HasSubstr((folder / "a.jpg").string()),
                    HasSubstr("neither JPEG nor PNG")));
  EXPECT_THAT(with("b.jpg", ""), HasSubstr("it is empty"));
  auto jpeg = bytes_of(data / "colors.jpg");
  EXPECT_THAT(
    with("c.jpg", jpeg.substr(0, jpeg.size() - 40)),
    AllOf(HasSubstr((folder / "c.jpg").string()), HasSubstr("Premature end")));
  EXPECT_NE(with("d.jpg", jpeg.substr(0, 100)), "");
  // Wherever it is cut, though some errors come after a warning.
  auto progressive = bytes_of(data / "progressive.jpg");
  for (auto size = progressive.size() - 2; size > 0; --size)
    EXPECT_NE(with("p.jpg", progressive.substr(0, size)), "") << size;
  auto png = bytes_of(data / "colors.png");
  EXPECT_NE(with("e.png", png.substr(0, png.size() / 2)), "");
  png[png.size() / 2] ^= 0x40;
  EXPECT_NE(with("f.png", png), "");
  EXPECT_THAT(failure_of([&] { read_image(folder / "none.jpg"); }),
              HasSubstr((folder / "none.jpg").string()));
}

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

TEST_F(image_folder_test, numbers_classes_by_name_and_samples_by_path) {
  const image_folder images{root_.path()};
  EXPECT_THAT(images.classes(), ElementsAre("cat", "dog"));
  ASSERT_EQ(images.size(), 3);
  EXPECT_EQ(images.path(0), root_ / "cat/more/c.jpg");
  EXPECT_EQ(images.path(1), root_ / "dog/a.jpeg");
  EXPECT_EQ(images.path(2), root_ / "dog/b.PNG");
  auto [pixels, label] = images.get(2, random_of(2));
  EXPECT_EQ(label, 1);
  EXPECT_EQ(difference(pixels, rows_of(data / "colors.png.rgb", 14, 21)), 0);
  EXPECT_EQ(images.get(0, random_of(0)).second, 0);
}

TEST_F(image_folder_test, decodes_its_files_at_the_size_asked_for) {
  const image_folder images{root_.path(), resize(4), {.decode_at_least = 4}};
  EXPECT_TRUE(
    images.get(1, random_of(1))
      .first.equal(read_image(data / "colors.jpg", {.decode_at_least = 4})));
  EXPECT_EQ(images.get(2, random_of(2)).first.size(1), 4); // the PNG, resized
}

TEST_F(image_folder_test, names_a_folder_without_images) {
  fs::create_directory(root_ / "empty");
  EXPECT_THAT(
    failure_of([&] { image_folder{root_.path()}; }),
    AllOf(HasSubstr((root_ / "empty").string()), HasSubstr("has no images")));
  EXPECT_THAT(failure_of([&] { image_folder{root_ / "dog"}; }),
              HasSubstr("has no folders"));
  EXPECT_THAT(failure_of([&] { image_folder{root_ / "none"}; }),
              HasSubstr((root_ / "none").string()));
}

TEST_F(image_folder_test, names_a_link_to_a_picture_that_is_missing) {
  fs::create_symlink(root_ / "dog/a.jpeg", root_ / "cat/d.jpg");
  EXPECT_EQ(image_folder{root_.path()}.size(), 4);
  fs::create_symlink("gone.png", root_ / "cat/e.png");
  EXPECT_THAT(failure_of([&] { image_folder{root_.path()}; }),
              HasSubstr((root_ / "cat/e.png").string() + " leads to no file"));
}

TEST_F(image_folder_test, names_sample_and_path_of_a_file_that_is_damaged) {
  auto jpeg = bytes_of(root_ / "dog/a.jpeg");
  write_bytes(root_ / "dog/a.jpeg", jpeg.substr(0, 300));
  auto context = make_context();
  for (int workers : {0, 2}) {
    auto loader = prepare_data_loader(context, image_folder{root_.path()},
                                      {.workers = workers});
    EXPECT_THAT(
      failure_of([&] {
        for ([[maybe_unused]] auto& batch : loader) {
        }
      }),
      AllOf(HasSubstr("sample 1"), HasSubstr((root_ / "dog/a.jpeg").string())));
  }
}

TEST_F(image_folder_test,
       gives_the_same_pictures_after_a_resume_and_to_others) {
  const image_folder images{root_.path(),
                            {random_resized_crop(8), random_horizontal_flip(),
                             to_float(),
                             normalize({0.5, 0.5, 0.5}, {0.2, 0.2, 0.2})}};
  data_loader_options options{.shuffle = true, .seed = 3};
  auto all_of = [&](int rank, int ranks, int workers,
                    const sampler_state* from = nullptr) {
    auto context = make_context(rank, ranks);
    options.workers = workers;
    options.tail = tail::no_padding;
    auto loader = prepare_data_loader(context, images, options);
    if (from)
      loader.load_state(*from);
    loader.set_epoch(2);
    std::vector<at::Tensor> result;
    for (auto& [image, label] : loader)
      result.push_back(image);
    return result;
  };
  auto whole = all_of(0, 1, 0);
  ASSERT_EQ(whole.size(), 3u);
  EXPECT_FALSE(whole[0].equal(whole[1]));
  auto threaded = all_of(0, 1, 2);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_TRUE(threaded[i].equal(whole[i]));
  auto first = all_of(0, 2, 0);
  auto second = all_of(1, 2, 0);
  EXPECT_TRUE(first[0].equal(whole[0]));
  EXPECT_TRUE(second[0].equal(whole[1]));
  EXPECT_TRUE(first[1].equal(whole[2]));
  const sampler_state after_two{3, 2, 2};
  auto rest = all_of(0, 1, 0, &after_two);
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_TRUE(rest[0].equal(whole[2]));
}
