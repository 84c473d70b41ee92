#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/http_get.hpp"
#include "tests/support/peers.hpp"
#include "tests/support/sink_records.hpp"
#include "troupe/callbacks/prometheus/prometheus_sink.hpp"

namespace troupe::internal {
namespace {

// Reads the page as Prometheus' own client does; one line a sample.
constexpr auto reader = R"(
import sys
from prometheus_client.parser import text_string_to_metric_families
for family in text_string_to_metric_families(open(sys.argv[1]).read()):
    for x in family.samples:
        if x.name.endswith('_bucket') and x.labels['le'] not in ('0.3', '+Inf'):
            continue
        print(family.type, x.name, sorted(x.labels.items()), x.value)
)";

TEST(prometheus_parser_test, reads_every_family_of_a_run) {
  TROUPE_NEEDS_PEERS();
  test::temporary_folder folder;
  auto run = test::run_in(folder.path());
  run.name = "odd \"name\\\n";
  run.status = [] {
    run_status x;
    x.state = run_state::running;
    x.world_size = 2;
    x.callback_s = 1.5;
    return x;
  };
  prometheus_sink sink{{}};
  ASSERT_TRUE(sink.start(run, ""));
  auto notes = sink.take_notes();
  ASSERT_EQ(notes.size(), 1u);
  auto& said = notes.front(); // ... http://127.0.0.1:<port>/metrics
  test::sink_records record;
  auto report =
    record.report(9007199254740993, {{{"val/loss", 0.1},
                                      {"nan", std::nan("")},
                                      {"inf", HUGE_VAL},
                                      {"s\xc3\xa4ule \"", -HUGE_VAL}}});
  auto& row = std::get<journaled_batch>(report.content);
  row.step_s = {0.25};
  row.wait_s = 0.2;
  row.checkpoint = "c";
  row.checkpoint_s = 7;
  ASSERT_TRUE(sink.log({&report, 1}));
  auto port = std::stoi(said.substr(said.rfind(':') + 1));
  auto page = test::http_get(port, "/metrics");
  ASSERT_TRUE(page);
  test::write_bytes(folder / "page", page->body);
  auto read = test::run_peer_script(reader, {(folder / "page").string()});
  ASSERT_EQ(read.exit_code, 0) << read.output;
  const std::string label = R"(('run', 'odd "name\\\n'))";
  auto expect = [&](const std::string& line) {
    EXPECT_NE(("\n" + read.output).find("\n" + line + "\n"), std::string::npos)
      << line << "\n"
      << read.output;
  };
  expect("counter troupe_reports_total [" + label + "] 1");
  expect("counter troupe_attempts_total [" + label + "] 0");
  expect("counter troupe_callback_seconds_total [" + label + "] 1.5");
  expect("histogram troupe_report_wait_seconds_bucket [('le', '0.3'), " + label
         + "] 1");
  expect("histogram troupe_checkpoint_seconds_bucket [('le', '0.3'), " + label
         + "] 0");
  expect("histogram troupe_checkpoint_seconds_bucket [('le', '+Inf'), " + label
         + "] 1");
  expect("histogram troupe_checkpoint_seconds_sum [" + label + "] 7");
  expect("gauge troupe_step [" + label + "] 9007199254740993");
  expect("gauge troupe_step_seconds [('rank', '0'), " + label + "] 0.25");
  expect("gauge troupe_run_state [" + label + ", ('state', 'running')] 1");
  expect("gauge troupe_workers [" + label + "] 2");
  expect("gauge troupe_metric [('name', 'val_loss'), " + label + "] 0.1");
  expect("gauge troupe_metric [('name', 'nan'), " + label + "] nan");
  expect("gauge troupe_metric [('name', 'inf'), " + label + "] inf");
  expect("gauge troupe_metric [('name', 's\xc3\xa4ule \"'), " + label
         + "] -inf");
}

} // namespace
} // namespace troupe::internal
