#pragma once

#include <gtest/gtest.h>

#include "tests/support/checkpoint_files.hpp"
#include "tests/support/mentions.hpp"
#include "tests/support/saved_state.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/store/checkpoint_store.hpp"

namespace troupe::internal::test {

/// The checkpoints of one run, on an empty disk.
class checkpoint_store_test : public testing::Test {
protected:
  checkpoint_store open(const checkpoint_config& config = {}) {
    auto state = load_run(run.path()).value();
    return checkpoint_store::open(held(run.path()), {"r"}, config,
                                  state.value_or(saved_run{}),
                                  saves_in(run.path()))
      .value();
  }

  /// Commits report *index* with one file of each of two ranks.
  expected<kept_checkpoint> commit(checkpoint_store& store, std::uint64_t index,
                                   metrics values = {}) {
    return store.commit(
      attempt, stage_batch(run.path(), attempt, index, name(index),
                           {{{"a", "rank 0"}}, {{"sub/b", "rank 1"}}}, values)
                 .value());
  }

  static std::string name(std::uint64_t index) {
    return "checkpoint_" + std::to_string(index);
  }

  fs::path folder(std::uint64_t index) const {
    return run.path() / "checkpoints" / name(index);
  }

  static void copy(const fs::path& from, const fs::path& to) {
    fs::create_directories(to / "sub");
    for (auto file : {"a", "sub/b", "manifest.json"})
      fs::copy_file(from / file, to / file);
  }

  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(
      fs::directory_iterator{run / "checkpoints"}, fs::directory_iterator{}));
  }

  const checkpoint_config keep_one{1, "", score_order::max};
  temporary_folder run;
  std::uint64_t attempt = 0;
};

} // namespace troupe::internal::test
