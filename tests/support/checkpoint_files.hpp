#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/checkpoint/staged_checkpoint.hpp"
#include "troupe/runtime/report/report.hpp"

namespace troupe::internal::test {

/// The folder *path*, in the form that a store takes.
inline held_folder held(const fs::path& path) {
  return held_folder::open(path).value();
}

/// The paths of all files below *folder*, relative to it.
inline std::vector<std::string> names_below(const fs::path& folder) {
  std::vector<std::string> result;
  auto files = files_below(folder).value();
  for (auto& x : files)
    result.push_back(x.lexically_relative(folder).generic_string());
  return result;
}

/// Text of the files of one rank, by path.
using file_texts = std::map<std::string, std::string>;

/// Stages and seals *files* as rank *rank* would do it for report *index*.
inline expected<checkpoint_part>
stage(const fs::path& run_path, std::uint64_t attempt, std::uint64_t index,
      int rank, const std::string& name, const file_texts& files) {
  auto staged = staging::create(run_path, attempt, rank);
  if (!staged)
    return tl::unexpected{staged.error()};
  for (auto& [path, text] : files) {
    fs::create_directories((staged->path() / path).parent_path());
    write_bytes(staged->path() / path, text);
  }
  return staging::seal(*staged, index, name);
}

/// Report *index* of as many ranks as *ranks* has elements, each with files.
inline expected<report_batch>
stage_batch(const fs::path& run_path, std::uint64_t attempt,
            std::uint64_t index, const std::string& name,
            const std::vector<file_texts>& ranks, metrics values = {}) {
  report_batch result;
  result.index = index;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    result.values.push_back(values);
    auto part = stage(run_path, attempt, index, static_cast<int>(rank), name,
                      ranks[rank]);
    if (!part)
      return tl::unexpected{part.error()};
    result.parts.push_back(std::move(*part));
  }
  return result;
}

} // namespace troupe::internal::test
