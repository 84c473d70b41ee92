#include "troupe/trainers/torch/files/safetensors_header.hpp"

#include <gtest/gtest.h>

using namespace troupe;
using namespace troupe::internal;

namespace {

std::string file(const std::string& json, std::size_t data_bytes,
                 std::uint64_t length) {
  std::string result;
  for (int i = 0; i < 8; ++i)
    result += static_cast<char>(length >> (8 * i) & 0xff);
  return result + json + std::string(data_bytes, '\1');
}

expected<safetensors_header> decode(const std::string& bytes) {
  return safetensors_header::decode(std::as_bytes(std::span{bytes}));
}

expected<safetensors_header> decode(const std::string& json,
                                    std::size_t data_bytes) {
  return decode(file(json, data_bytes, json.size()));
}

std::string tensor(const std::string& name, const std::string& shape, int begin,
                   int end, const std::string& dtype = "F32") {
  return '"' + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape
         + R"(,"data_offsets":[)" + std::to_string(begin) + ','
         + std::to_string(end) + "]}";
}

/// Why a file with the header *json* is refused.
std::string problem(const std::string& json, std::size_t data_bytes = 8) {
  auto x = decode(json, data_bytes);
  if (x)
    return "";
  EXPECT_EQ(x.error().code, ec::corrupt);
  return x.error().message;
}

} // namespace

TEST(safetensors_header_test, reads_what_it_has_written) {
  safetensors_header x;
  x.entries = {{"a/b \"c\"", "F64", {2, 1}, 0, 16},
               {"e", "BF16", {0, 9}, 16, 16},
               {"s", "U8", {}, 16, 17}};
  x.metadata = {{"format", "pt"}, {"\u00fc", ""}};
  auto head = x.encode();
  EXPECT_EQ(head.size() % 8, 0u);
  auto bytes = head + std::string(17, 'x');
  EXPECT_EQ(safetensors_header::data_offset(std::as_bytes(std::span{bytes})),
            head.size());
  auto y = decode(bytes);
  ASSERT_TRUE(y) << y.error().message;
  EXPECT_EQ(y->entries, x.entries);
  EXPECT_EQ(y->metadata, x.metadata);
}

TEST(safetensors_header_test, reads_an_empty_file_of_tensors) {
  EXPECT_TRUE(decode("{}", 0));
  EXPECT_TRUE(decode("{}      ", 0));
}

TEST(safetensors_header_test, refuses_lengths_that_the_file_does_not_have) {
  EXPECT_FALSE(decode(""));
  EXPECT_FALSE(decode("1234567"));
  EXPECT_FALSE(decode(file("{}", 0, 3)));
  EXPECT_FALSE(decode(file("{}", 0, UINT64_MAX)));
  EXPECT_FALSE(decode(file("{}", 0, UINT64_MAX - 7)));
  EXPECT_FALSE(decode(file("{}", 0, std::uint64_t{1} << 40)));
}

TEST(safetensors_header_test, refuses_what_is_not_a_header) {
  EXPECT_NE(problem("", 8), "");
  EXPECT_NE(problem("[]", 8), "");
  EXPECT_NE(problem("{\"a\":", 8), "");
  EXPECT_NE(problem("{\"a\":1}", 8), "");
  EXPECT_NE(problem("{\"a\":{}}", 8), "");
  EXPECT_NE(problem("{\"\xff\":1}", 8), "");
  EXPECT_NE(problem("{\"__metadata__\":{\"a\":1}}", 0), "");
  EXPECT_NE(problem("{\"__metadata__\":[]}", 0), "");
}

TEST(safetensors_header_test, refuses_deep_nesting_without_following_it) {
  const std::string deep(1'000'000, '[');
  EXPECT_NE(problem("{\"a\":" + deep).find("nested"), std::string::npos);
}

TEST(safetensors_header_test, refuses_names_that_are_used_twice) {
  auto text =
    '{' + tensor("a", "[1]", 0, 4) + ',' + tensor("a", "[1]", 4, 8) + '}';
  EXPECT_NE(problem(text).find("'a' is used twice"), std::string::npos);
}

TEST(safetensors_header_test, refuses_offsets_that_overlap_or_leave_gaps) {
  auto two = [](int begin, int end, const char* shape) {
    return '{' + tensor("a", "[1]", 0, 4) + ',' + tensor("b", shape, begin, end)
           + '}';
  };
  EXPECT_EQ(problem(two(4, 8, "[1]")), "");
  EXPECT_NE(problem(two(0, 8, "[2]")).find("overlaps"), std::string::npos);
  EXPECT_NE(problem(two(0, 4, "[1]")).find("overlaps"), std::string::npos);
  EXPECT_NE(problem(two(8, 12, "[1]"), 12).find("gap"), std::string::npos);
  EXPECT_NE(problem(two(4, 12, "[2]")).find("outside"), std::string::npos);
  EXPECT_NE(problem(two(8, 4, "[1]")).find("outside"), std::string::npos);
  EXPECT_NE(problem(two(4, 8, "[1]"), 9).find("belong to no tensor"),
            std::string::npos);
}

TEST(safetensors_header_test, refuses_shapes_that_do_not_match_their_bytes) {
  auto shaped = [](const std::string& shape, const std::string& dtype = "F32") {
    return '{' + tensor("a", shape, 0, 8, dtype) + '}';
  };
  EXPECT_EQ(problem(shaped("[2]")), "");
  EXPECT_EQ(problem(shaped("[2,2]", "F16")), "");
  for (const auto* shape :
       {"[3]", "[]", "[0]", "[-2]", "[2.0]", "[\"2\"]", "2", "[[2]]",
        "[4294967296,4294967296,2]", "[9223372036854775807,4]",
        "[18446744073709551615]", "[99999999999999999999]"})
    EXPECT_NE(problem(shaped(shape)), "") << shape;
  EXPECT_NE(problem(shaped("[2]", "F31")).find("\"F31\""), std::string::npos);
}

TEST(safetensors_header_test,
     refuses_shapes_of_no_elements_that_are_too_large) {
  auto empty = [](const std::string& shape) {
    return problem('{' + tensor("a", shape, 0, 0, "U8") + '}', 0);
  };
  EXPECT_EQ(empty("[9223372036854775807,0]"), "");
  EXPECT_EQ(empty("[0,4294967296,2147483647]"), "");
  for (const auto* shape :
       {"[0,4294967296,2147483648]", "[0,9223372036854775807,2]",
        "[0,4294967296,0,4294967296]"})
    EXPECT_NE(empty(shape).find("'a' has a shape that is too large"),
              std::string::npos)
      << shape;
}

TEST(safetensors_header_test, survives_every_cut_and_every_flipped_byte) {
  safetensors_header x;
  x.entries = {{"weight", "F32", {2}, 0, 8}, {"bias", "I64", {1}, 8, 16}};
  x.metadata = {{"k", "v"}};
  auto whole = x.encode() + std::string(16, '\0');
  for (std::size_t n = 0; n < whole.size(); ++n)
    EXPECT_FALSE(decode(whole.substr(0, n))) << n;
  for (std::size_t i = 0; i < whole.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      auto changed = whole;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      if (auto y = decode(changed)) {
        for (const auto& entry : y->entries)
          EXPECT_LE(entry.end, 16u);
      }
    }
}
