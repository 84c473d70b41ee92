// Images as Pillow reads them, and files that are damaged.

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/unit/trainers/torch/images/image_data.hpp"
#include "troupe/trainers/torch/images/image_file.hpp"

namespace troupe::internal::test {

using testing::AllOf;
using testing::HasSubstr;

namespace {

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

} // namespace troupe::internal::test
