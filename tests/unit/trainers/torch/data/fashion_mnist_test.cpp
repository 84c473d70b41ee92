#include "troupe/trainers/torch/data/fashion_mnist.hpp"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "tests/support/temporary_folder.hpp"
#include "troupe/trainers/train_context.hpp"

using namespace troupe;
using namespace troupe::internal;

namespace {

constexpr auto images_name = "t10k-images-idx3-ubyte.gz";
constexpr auto labels_name = "t10k-labels-idx1-ubyte.gz";

std::string word(std::uint32_t x) {
  std::string result;
  for (int shift : {24, 16, 8, 0})
    result += static_cast<char>(x >> shift & 0xff);
  return result;
}

std::string images(std::uint32_t n, std::uint32_t side = 28) {
  return word(2051) + word(n) + word(side) + word(side)
         + std::string(n * side * side, '\x40');
}

std::string labels(std::uint32_t n, char value = 3) {
  return word(2049) + word(n) + std::string(n, value);
}

void write_gzip(const fs::path& path, const std::string& bytes) {
  auto* file = gzopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
            static_cast<int>(bytes.size()));
  EXPECT_EQ(gzclose(file), Z_OK);
}

class fashion_mnist_test : public testing::Test {
protected:
  /// Error of a test set of these files.
  error reason(const std::string& image_bytes, const std::string& label_bytes) {
    write_gzip(folder_ / images_name, image_bytes);
    write_gzip(folder_ / labels_name, label_bytes);
    return reason();
  }

  error reason() {
    try {
      fashion_mnist x{folder_.path(), split::test};
      return {};
    } catch (const train_error& x) {
      return x.reason();
    }
  }

  test::temporary_folder folder_;
};

} // namespace

TEST_F(fashion_mnist_test, reads_the_files_of_debian) {
  const fashion_mnist train{split::train};
  const fashion_mnist test{split::test};
  EXPECT_EQ(train.size(), 60'000);
  EXPECT_EQ(test.size(), 10'000);
  const std::vector<std::int64_t> indices{0, 1, 2, 3, 4, 5, 6, 7};
  auto [pictures, classes] = train.get_batch(indices);
  EXPECT_EQ(pictures.sizes(), (std::vector<std::int64_t>{8, 1, 28, 28}));
  EXPECT_EQ(pictures.scalar_type(), at::kFloat);
  EXPECT_EQ(pictures.min().item().toDouble(), -1);
  EXPECT_EQ(pictures.max().item().toDouble(), 1);
  EXPECT_TRUE(classes.equal(
    at::tensor(std::vector<std::int64_t>{9, 0, 0, 3, 0, 2, 7, 2})));
  auto [picture, label] = train.get(3);
  EXPECT_TRUE(picture.equal(pictures[3]));
  EXPECT_EQ(label.item().toLong(), 3);
}

TEST_F(fashion_mnist_test, normalizes_as_the_reference_does) {
  ASSERT_FALSE(reason(images(2), labels(2)));
  const fashion_mnist x{folder_.path(), split::test};
  auto expected = (at::scalar_tensor(64.0f) / 255 - 0.5) / 0.5;
  EXPECT_TRUE(x.get(1).first.eq(expected).all().item().toBool());
}

TEST_F(fashion_mnist_test, refuses_an_index_out_of_range) {
  ASSERT_FALSE(reason(images(2), labels(2)));
  const fashion_mnist x{folder_.path(), split::test};
  EXPECT_THROW(x.get(2), std::out_of_range);
  EXPECT_THROW(x.get(-1), std::out_of_range);
}

TEST_F(fashion_mnist_test, names_a_missing_file_and_the_package) {
  auto x = reason();
  EXPECT_EQ(x.code, ec::storage);
  EXPECT_NE(x.message.find((folder_ / images_name).string()),
            std::string::npos);
  EXPECT_NE(x.message.find("dataset-fashion-mnist"), std::string::npos);
}

TEST_F(fashion_mnist_test, names_a_damaged_file) {
  struct {
    std::string images;
    std::string labels;
    const char* file;
  } cases[]{
    {labels(2), labels(2), images_name},
    {"", labels(2), images_name},
    {images(2).substr(0, 10), labels(2), images_name},
    {images(2).substr(0, 1000), labels(2), images_name},
    {images(2) + 'x', labels(2), images_name},
    {images(2, 27), labels(2), images_name},
    {images(0), labels(2), images_name},
    {word(2051) + word(UINT32_MAX) + word(28) + word(28), labels(2),
     images_name},
    {word(2051) + word(2) + word(UINT32_MAX) + word(UINT32_MAX), labels(2),
     images_name},
    {images(2), labels(3), labels_name},
    {images(2), labels(2, 10), labels_name},
    {images(2), images(2), labels_name},
  };
  for (const auto& x : cases) {
    auto found = reason(x.images, x.labels);
    EXPECT_EQ(found.code, ec::corrupt) << found.message;
    EXPECT_NE(found.message.find((folder_ / x.file).string()),
              std::string::npos)
      << found.message;
  }
}

TEST_F(fashion_mnist_test, notices_flipped_and_missing_bytes_of_the_archive) {
  ASSERT_FALSE(reason(images(2), labels(2)));
  auto whole = test::bytes_of(folder_ / images_name);
  test::write_bytes(folder_ / images_name, whole.substr(0, whole.size() - 4));
  EXPECT_EQ(reason().code, ec::corrupt);
  auto flipped = whole;
  flipped[whole.size() - 6] ^= 1; // in the checksum
  test::write_bytes(folder_ / images_name, flipped);
  EXPECT_EQ(reason().code, ec::corrupt);
}
