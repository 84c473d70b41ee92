#include "troupe/callbacks/encoding/percent.hpp"

#include <gtest/gtest.h>

namespace troupe::internal {

TEST(percent_encoded_test, keeps_plain_characters_and_those_requested) {
  EXPECT_EQ(percent_encoded("aZ09-._~"), "aZ09-._~");
  EXPECT_EQ(percent_encoded("a b/\xC3\xA4%"), "a%20b%2F%C3%A4%25");
  EXPECT_EQ(percent_encoded("a/b?c", "/"), "a/b%3Fc");
}

TEST(percent_decoded_test, reads_back_what_was_encoded) {
  std::string all;
  for (int i = 0; i < 256; ++i)
    all += static_cast<char>(i);
  EXPECT_EQ(percent_decoded(percent_encoded(all)), all);
  EXPECT_EQ(percent_decoded("%c3%A4"), "\xC3\xA4");
}

TEST(percent_decoded_test, keeps_invalid_escapes) {
  for (auto text : {"", "%", "%4", "%4g", "%g4", "%-1", "% 1", "100%"})
    EXPECT_EQ(percent_decoded(text), text);
  EXPECT_EQ(percent_decoded("%%41"), "%A");
}

TEST(percent_decoded_test, takes_a_plus_for_a_blank_on_request) {
  EXPECT_EQ(percent_decoded("a+b%2B"), "a+b+");
  EXPECT_EQ(percent_decoded("a+b%2B", plus_sign::blank), "a b+");
}

} // namespace troupe::internal
