// The sink of docs/trackers/writing_a_sink.md, copied verbatim.

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_folder.hpp"
#include "troupe/callbacks/trackers/default_trackers.hpp"
#include "troupe/callbacks/tracking/row_values.hpp"
#include "troupe/callbacks/tracking/tracker_set.hpp"
#include "troupe/runtime/store/run_store.hpp"

namespace {

struct line_sink : troupe::sink {
  std::string name() const override { return "lines"; }
  std::string options() const override { return "{}"; }
  std::string state() const override { return std::to_string(size); }

  troupe::sink_result start(const troupe::tracked_run& run,
                            const std::string& state) override {
    path = run.path / "lines.txt";
    size = state.empty() ? 0 : std::stoull(state);
    std::ofstream{path.string(), std::ios::app}; // create it if it is missing
    troupe::fs::resize_file(path, size);
    return {};
  }

  troupe::sink_result
  log(std::span<const troupe::tracker_record> records) override {
    std::ofstream out{path.string(), std::ios::app};
    for (auto& record : records)
      if (auto row = std::get_if<troupe::journaled_batch>(&record.content))
        out << row->index << ' '
            << to_string(values_of(*row, troupe::rank_values::first)) << '\n';
    if (!out.flush())
      return sink_fails(troupe::sink_failure::kind::transient,
                        {troupe::ec::storage, "cannot write " + path.string()});
    size = static_cast<std::uint64_t>(out.tellp());
    return {};
  }

  troupe::sink_result finish(troupe::run_status_kind,
                             std::chrono::system_clock::time_point) override {
    return {};
  }

  troupe::fs::path path;
  std::uint64_t size = 0;
};

} // namespace

TEST(line_sink_test, has_each_report_once_despite_a_restart) {
  using namespace troupe;
  using namespace troupe::internal;
  test::temporary_folder storage;
  run_config config;
  config.name = "r";
  config.storage_path = storage.path();
  config.metrics_csv = config.report_page = false;
  auto store = run_store::open(config).value();
  ASSERT_TRUE(store->begin_attempt());
  auto report = [&](std::uint64_t index) {
    report_batch batch;
    batch.index = index;
    batch.values = {{{"loss", 0.5}}};
    batch.parts.resize(1);
    ASSERT_TRUE(store->append(0, batch));
  };
  auto feed_all = [&] {
    config.trackers = {
      std::make_shared<tracker>(std::make_shared<line_sink>())};
    tracker_set::start(trackers_of(config), store->description(), store->path(),
                       {[](std::string) {}, {}})
      .value()
      ->finish();
  };
  auto lines = store->path() / "lines.txt";
  report(0);
  feed_all();
  // Written, but the position was not saved: the process died in between.
  std::ofstream{lines.string(), std::ios::app} << "1 loss=0.5\n";
  report(1);
  report(2);
  feed_all();
  EXPECT_EQ(test::bytes_of(lines), "0 loss=0.5\n1 loss=0.5\n2 loss=0.5\n");
}
