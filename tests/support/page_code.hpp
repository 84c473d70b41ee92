#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"

namespace troupe::internal::test {

/// *text* without its white space.
inline std::string squeezed(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isspace(c) != 0; });
  return text;
}

/// Expects that each C++ block of a page is a piece of one of *sources*, which
/// a test compiles, white space aside. Paths begin at the root of the tree.
/// Returns how many blocks there are.
inline std::size_t compare_page_code(const fs::path& page,
                                     const std::vector<fs::path>& sources) {
  fs::path tree{TROUPE_TEST_TREE};
  std::vector<std::string> compiled;
  for (auto& source : sources)
    compiled.push_back(squeezed(bytes_of(tree / source)));
  auto text = bytes_of(tree / page);
  std::size_t blocks = 0;
  for (std::size_t i = 0; (i = text.find("```cpp\n", i)) != std::string::npos;
       ++blocks) {
    i += 7;
    auto end = text.find("```", i);
    auto block = text.substr(i, end - i);
    EXPECT_TRUE(
      std::ranges::any_of(compiled,
                          [what = squeezed(block)](const std::string& x) {
                            return x.find(what) != std::string::npos;
                          }))
      << page << " shows what no test compiles:\n"
      << block;
    i = end + 3;
  }
  return blocks;
}

} // namespace troupe::internal::test
