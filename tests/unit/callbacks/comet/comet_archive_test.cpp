#include "troupe/callbacks/comet/comet_archive.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/sink_records.hpp"
#include "troupe/callbacks/comet/comet_sink.hpp"
#include "troupe/runtime/process/secrets.hpp"

namespace troupe::internal {
namespace {

using test::bytes_of;
using test::environment_guard;
using test::record_time;
using test::run_in;
using test::sink_records;
using test::temporary_folder;
using test::write_bytes;

class comet_archive_test : public testing::Test {
protected:
  fs::path messages_path() const {
    return folder / "comet" / (run.id + ".messages");
  }

  std::string messages() const { return bytes_of(messages_path()); }

  std::string packed(const std::string& ending = ".zip") const {
    return zip_member(bytes_of(folder / "comet" / (run.id + ending)),
                      "messages.json")
      .value_or("none");
  }

  temporary_folder folder;
  environment_guard guard{
    {{"HOME", folder.path().string()}, {"COMET_API_KEY", ""}}};
  comet_options options{.mode = comet_mode::offline};
  sink_records record;
  tracked_run run = run_in(folder.path());
};

TEST(zip_test, reads_back_what_it_packed_unless_it_is_damaged) {
  std::string text(100'000, 'x');
  auto zip = make_zip({{"empty", ""}, {"größe", text}});
  ASSERT_TRUE(zip) << zip.error().message;
  EXPECT_LT(zip->size(), 1000u);
  EXPECT_EQ(zip_member(*zip, "empty"), "");
  EXPECT_EQ(zip_member(*zip, "größe"), text);
  EXPECT_EQ(zip_member(*zip, "other").error().code, ec::corrupt);
  EXPECT_EQ(zip_member("", "empty").error().code, ec::corrupt);
  for (auto end : {zip->size() / 2, zip->size() - 1})
    EXPECT_EQ(zip_member(zip->substr(0, end), "größe").error().code,
              ec::corrupt);
  auto checksum = zip->rfind("PK\x01\x02") + 16; // of the last entry
  (*zip)[checksum] ^= 1;
  EXPECT_EQ(zip_member(*zip, "größe").error().code, ec::corrupt);
}

TEST_F(comet_archive_test, writes_each_kind_of_value) {
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  auto row = record.report(3, {{{"big", 9007199254740993},
                                {"down", -HUGE_VAL},
                                {"flag", true},
                                {"loss", 0.1},
                                {"nan", std::nan("")},
                                {"val/word", "a\"b"}}});
  ASSERT_TRUE(x.log({&row, 1}));
  auto text = messages();
  auto has = [&](const std::string& part) {
    EXPECT_NE(text.find(part), text.npos) << part << "\n" << text;
  };
  has(R"("metric":{"metricName":"loss","metricValue":0.1,"step":3,)");
  has(R"("metricName":"big","metricValue":9007199254740993,)");
  has(R"("metricName":"down","metricValue":"-Infinity",)");
  has(R"("metricName":"flag","metricValue":1,)");
  has(R"("metricName":"nan","metricValue":"NaN",)");
  has(R"({"payload":{"key":"val/word","value":"a\"b","message_id":)");
  has(R"("param":{"paramName":"lr","paramValue":0.1,"source":"manual")");
  has(R"("local_timestamp":1700000000500)");
}

TEST_F(comet_archive_test, writes_nothing_once_the_run_is_over) {
  std::stop_source over;
  run.cancelled = over.get_token();
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  auto row = record.report(0, {{{"loss", 0.5}}});
  ASSERT_TRUE(x.log({&row, 1}));
  auto before = messages();
  over.request_stop();
  row = record.report(1, {{{"loss", 0.25}}});
  EXPECT_FALSE(x.log({&row, 1}));
  EXPECT_FALSE(x.finish(run_status_kind::finished, record_time(2)));
  EXPECT_EQ(messages(), before);
  EXPECT_EQ(packed(), "none");
}

TEST_F(comet_archive_test, sends_a_text_again_only_when_it_changes) {
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  for (std::uint64_t i = 0; i < 4; ++i) {
    auto row = record.report(i, {{{"phase", i < 3 ? "warm" : "hot"}}});
    ASSERT_TRUE(x.log({&row, 1}));
  }
  auto text = messages();
  EXPECT_EQ(text.find("\"warm\""), text.rfind("\"warm\""));
  EXPECT_NE(text.find("\"hot\""), text.npos);
}

TEST_F(comet_archive_test, cuts_what_was_not_confirmed) {
  auto row = record.report(0, {{{"a", 1}}});
  auto more = record.report(1, {{{"b", 2}}});
  std::string state;
  {
    comet_sink x{options};
    ASSERT_TRUE(x.start(run, ""));
    ASSERT_TRUE(x.log({&row, 1}));
    state = x.state();
    ASSERT_TRUE(x.log({&more, 1}));
  }
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, state));
  ASSERT_TRUE(x.log({&more, 1}));
  auto text = messages();
  EXPECT_EQ(text.find("\"b\""), text.rfind("\"b\""));
  EXPECT_NE(text.find("\"a\""), text.npos);
}

TEST_F(comet_archive_test, packs_an_archive_each_time_the_run_ends) {
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  ASSERT_TRUE(x.finish(run_status_kind::aborted, record_time(9)));
  auto first = folder / "comet" / (run.id + ".zip");
  ASSERT_TRUE(bytes_of(first).starts_with("PK\x03\x04"));
  EXPECT_EQ(messages(), "");
  comet_sink y{options};
  ASSERT_TRUE(y.start(run, x.state()));
  auto row = record.report(0, {{{"a", 1}}});
  ASSERT_TRUE(y.log({&row, 1}));
  ASSERT_TRUE(y.finish(run_status_kind::finished, record_time(19)));
  EXPECT_TRUE(fs::exists(folder / "comet" / (run.id + "-1.zip")));
}

/// The driver dies after packing the archive and before saving its state.
TEST_F(comet_archive_test, packs_the_same_again_when_its_end_was_not_saved) {
  auto row = record.report(0, {{{"a", 1}}});
  auto more = record.report(1, {{{"b", 2}}});
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  ASSERT_TRUE(x.log({&row, 1}));
  auto state = x.state();
  ASSERT_TRUE(x.log({&more, 1})); // Saved with the end.
  ASSERT_TRUE(x.finish(run_status_kind::finished, record_time(9)));
  auto first = packed();
  EXPECT_NE(first.find("\"a\""), first.npos);
  comet_sink y{options};
  ASSERT_TRUE(y.start(run, state));
  ASSERT_TRUE(y.log({&more, 1}));
  ASSERT_TRUE(y.finish(run_status_kind::finished, record_time(9)));
  EXPECT_EQ(packed(), first);
  EXPECT_FALSE(fs::exists(folder / "comet" / (run.id + "-1.zip")));
}

TEST_F(comet_archive_test, refuses_to_start_if_confirmed_messages_are_missing) {
  auto row = record.report(0, {{{"a", 1}}});
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  ASSERT_TRUE(x.log({&row, 1}));
  auto text = messages();
  auto refuses = [&] {
    comet_sink y{options};
    auto failed = y.start(run, x.state());
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().what, sink_failure::kind::permanent);
    auto& said = failed.error().reason.message;
    EXPECT_NE(said.find(messages_path().string()), said.npos) << said;
  };
  write_bytes(messages_path(), text.substr(0, text.size() - 1));
  refuses();
  EXPECT_EQ(messages(), text.substr(0, text.size() - 1));
  fs::remove(messages_path());
  refuses();
  EXPECT_FALSE(fs::exists(messages_path()));
}

TEST_F(comet_archive_test, says_where_the_archive_is_when_a_key_is_missing) {
  comet_sink x{{}};
  EXPECT_TRUE(x.start(run, ""));
  auto notes = x.take_notes();
  ASSERT_EQ(notes.size(), 1u);
  auto& said = notes.front();
  EXPECT_NE(said.find("COMET_API_KEY"), said.npos);
  EXPECT_NE(said.find("comet upload '"
                      + (folder / "comet" / (run.id + ".zip")).string()),
            said.npos)
    << said;
  EXPECT_EQ(redacted(said), said);
}

} // namespace
} // namespace troupe::internal
