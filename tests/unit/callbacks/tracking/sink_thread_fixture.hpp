#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"
#include "tests/unit/callbacks/tracking/recorded_sink.hpp"
#include "troupe/callbacks/trackers/default_trackers.hpp"
#include "troupe/callbacks/tracking/tracker_set.hpp"
#include "troupe/runtime/store/run_store.hpp"

namespace troupe::internal::test {

/// A run with one tracker, which is in memory.
class sink_thread_test : public testing::Test {
protected:
  sink_thread_test() { reopen("r"); }

  /// Another run, and a tracker that has seen nothing.
  void reopen(const std::string& name) {
    target = std::make_shared<recorded_sink>();
    config.name = name;
    config.storage_path = storage.path();
    config.metrics_csv = false;
    config.report_page = false;
    store = run_store::open(config).value();
    EXPECT_TRUE(store->begin_attempt());
    // Trackers start at once if they know what the run is called.
    EXPECT_TRUE(store->append_event("tracker_start", 0, {{"project", "p"}}));
  }

  void report(std::uint64_t index) {
    report_batch batch;
    batch.index = index;
    batch.values = {{{"loss", 0.5}}};
    batch.parts.resize(1);
    ASSERT_TRUE(store->append(0, batch));
  }

  expected<std::unique_ptr<tracker_set>> start(tracker_options options = {}) {
    config.trackers = {std::make_shared<tracker>(target, options)};
    return tracker_set::start(trackers_of(config), store->description(),
                              store->path(),
                              {[list = shared_notes](std::string text) {
                                 std::lock_guard guard{list->mutex};
                                 list->notes.push_back(std::move(text));
                               },
                               {}});
  }

  temporary_folder storage;
  run_config config;
  std::unique_ptr<run_store> store;
  std::shared_ptr<recorded_sink> target;
  /// Outlives the test with a tracker that is left behind.
  struct note_list {
    std::mutex mutex;
    std::vector<std::string> notes;
  };
  std::shared_ptr<note_list> shared_notes = std::make_shared<note_list>();
  std::vector<std::string>& notes = shared_notes->notes;
};

} // namespace troupe::internal::test
