#pragma once

#include <gtest/gtest.h>

#include "tests/support/checkpoint_files.hpp"
#include "tests/support/mentions.hpp"
#include "tests/support/store_batch.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/store/run_store.hpp"

namespace troupe::internal::test {

/// One run on an empty disk.
class run_store_test : public testing::Test {
protected:
  run_config config() const {
    run_config result;
    result.name = "r";
    result.storage_path = storage / "runs";
    return result;
  }

  expected<std::unique_ptr<run_store>> open() {
    return run_store::open(config(), "{\"lr\":0.1}");
  }

  report_batch with_checkpoint(std::uint64_t attempt, std::uint64_t index,
                               metrics values) {
    return stage_batch(run, attempt, index, "c" + std::to_string(index),
                       {{{"a", "1"}}, {{"b", "2"}}}, std::move(values))
      .value();
  }

  temporary_folder storage;
  fs::path run = storage / "runs" / "r";
};

inline report_batch metrics_only(std::uint64_t index,
                                 std::vector<metrics> values) {
  report_batch result;
  result.index = index;
  result.values = packed(values);
  result.parts.resize(result.values.size());
  return result;
}

} // namespace troupe::internal::test
