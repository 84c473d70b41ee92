#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"
#include "tests/unit/callbacks/tracking/recorded_sink.hpp"
#include "troupe/callbacks/tracking/sink_feed.hpp"
#include "troupe/callbacks/tracking/tracked_run.hpp"
#include "troupe/runtime/store/run_store.hpp"

namespace troupe::internal::test {

/// A run whose journal a feed gives to a tracker in memory.
class sink_feed_test : public testing::Test {
protected:
  sink_feed_test() {
    run_config config;
    config.name = "r";
    config.storage_path = storage.path();
    store = run_store::open(config, R"({"config":{"opt":{"lr":0.5}}})").value();
    attempt = store->begin_attempt().value().attempt;
  }

  void report(std::uint64_t index) {
    report_batch batch;
    batch.index = index;
    batch.values = {{{"loss", 1.0 / static_cast<double>(index + 1)}}};
    batch.parts.resize(1);
    ASSERT_TRUE(store->append(attempt, batch));
  }

  void report_until(std::uint64_t end) {
    for (auto i = reported; i < end; ++i)
      report(i);
    reported = end;
  }

  sink_feed new_feed(backoff::limits retry = {
                       std::chrono::milliseconds{100},
                       std::chrono::milliseconds{1000}}) {
    return {target, describe_tracked_run(store->description(), store->path()),
            tracker_options{.retry = retry},
            [this](std::string text) { notes.push_back(std::move(text)); }};
  }

  /// Pumps, on a clock of its own, until the feed waits for the journal.
  void drain(sink_feed& feed, int most = 10000) {
    for (int i = 0; i < most; ++i) {
      auto next = feed.pump(now);
      if (!next)
        return;
      now = *next;
    }
    FAIL() << "the feed does not come to an end";
  }

  static std::vector<std::uint64_t> up_to(std::uint64_t end) {
    std::vector<std::uint64_t> result(end);
    std::iota(result.begin(), result.end(), 0);
    return result;
  }

  static sink_result down() {
    return sink_fails(sink_failure::kind::transient,
                      {ec::storage, "the tracker is down"});
  }

  temporary_folder storage;
  std::unique_ptr<run_store> store;
  std::uint64_t attempt = 0;
  std::uint64_t reported = 0;
  std::shared_ptr<recorded_sink> target = std::make_shared<recorded_sink>();
  std::vector<std::string> notes;
  sink_feed::clock::time_point now{};
};

} // namespace troupe::internal::test
