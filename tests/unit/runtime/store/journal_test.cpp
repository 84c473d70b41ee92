#include "troupe/runtime/store/journal.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <thread>

#include "tests/support/small_disk.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/failpoint.hpp"
#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/store/journal_reader.hpp"

using namespace troupe;
using namespace troupe::internal;
using namespace troupe::internal::test;

namespace {

expected<std::unique_ptr<journal>> open_journal(const fs::path& path) {
  TROUPE_TRY(auto file, open_file(path, journal::open_flags(), "open"));
  return journal::open(std::move(file), path);
}

report_batch batch(std::uint64_t index, std::vector<metrics> values) {
  report_batch result;
  result.index = index;
  result.values = packed(values);
  return result;
}

std::vector<journal_entry> read_all(const fs::path& path) {
  std::vector<journal_entry> result;
  auto reader = journal_reader::open(path).value();
  while (auto entry = reader.next().value())
    result.push_back(std::move(*entry));
  return result;
}

std::uint64_t index_of(const journal_entry& x) {
  return std::get<journaled_batch>(x).index;
}

// A journal with batches 0, 1, 2, and where each of its lines ends.
std::vector<std::size_t> write_three(const fs::path& path) {
  auto log = open_journal(path).value();
  for (std::uint64_t i = 0; i < 3; ++i)
    EXPECT_TRUE(log->append_batch(i, batch(i, {{{"loss", 0.5}}})));
  std::vector<std::size_t> ends;
  auto bytes = bytes_of(path);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] == '\n')
      ends.push_back(i + 1);
  return ends;
}

} // namespace

class journal_test : public testing::Test {
protected:
  temporary_folder folder;
  fs::path path = folder / "journal.jsonl";
};

TEST_F(journal_test, a_reader_forgets_half_a_line_that_is_cut_off) {
  auto write = [this](std::string_view text) {
    std::ofstream{path.string(), std::ios::app} << text;
  };
  write("one\ntorn half");
  auto lines = line_reader::open(path, 0).value();
  EXPECT_EQ(lines.next().value(), "one\n");
  EXPECT_FALSE(lines.next().value());
  fs::resize_file(path, 4);
  write("two\nthree\n");
  EXPECT_EQ(lines.next().value(), "two\n");
  EXPECT_EQ(lines.next().value(), "three\n");
}

TEST_F(journal_test, reads_the_values_of_the_first_ranks_on_request) {
  metrics hard{{"quotes \"}]\\", "text {[\"\\\"]}"},
               {"bytes", "\xFF"},
               {"bad", std::numeric_limits<double>::quiet_NaN()},
               {",\"values\":[", 1}};
  auto row = batch(7, {hard, {}, {{"loss", 0.5}}, hard});
  row.step_s = {0.5, 0.25, 0.5, 0.5};
  auto log = open_journal(path).value();
  ASSERT_TRUE(log->append_batch(3, row, "c7", 0.5));
  ASSERT_TRUE(log->append_event("tracker_log", 3, hard));
  for (std::size_t ranks = 0; ranks <= 5; ++ranks) {
    auto reader = journal_reader::open(path, 0, ranks).value();
    auto read = std::get<journaled_batch>(reader.next().value().value());
    for (std::size_t rank = ranks; rank < row.values.size(); ++rank)
      row.values[rank] = {};
    EXPECT_EQ(read.values, unpacked(row.values)) << ranks;
    EXPECT_EQ(read.step_s.size(), 4u);
    EXPECT_EQ(read.checkpoint, "c7");
    auto event = std::get<journal_event>(reader.next().value().value());
    EXPECT_EQ(event.fields, hard);
    row.values = {hard, {}, {{"loss", 0.5}}, hard};
  }
}

TEST_F(journal_test, gives_back_batches_and_events_as_they_were) {
  auto nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<metrics> values{{{"loss", nan}, {"step", 7}}, {{"loss", 1.0}}};
  {
    auto log = open_journal(path).value();
    EXPECT_TRUE(log->append_event("started", 3, {{"reason", "none"}}));
    EXPECT_TRUE(log->append_batch(3, batch(12, values), "epoch_1"));
    EXPECT_EQ(log->next_report(), 13u);
  }
  auto entries = read_all(path);
  ASSERT_EQ(entries.size(), 2u);
  auto& event = std::get<journal_event>(entries[0]);
  EXPECT_EQ(event.kind, "started");
  EXPECT_EQ(event.attempt, 3u);
  EXPECT_EQ(event.fields, (metrics{{"reason", "none"}}));
  auto& row = std::get<journaled_batch>(entries[1]);
  EXPECT_EQ(row.index, 12u);
  EXPECT_EQ(row.attempt, 3u);
  EXPECT_EQ(row.values, values);
  EXPECT_EQ(row.checkpoint, "epoch_1");
  EXPECT_GE(row.time, event.time);
  EXPECT_EQ(open_journal(path).value()->next_report(), 13u);
  EXPECT_EQ(open_journal(path).value()->next_attempt(), 4u);
}

TEST_F(journal_test, recovers_all_whole_lines_from_a_tear_at_any_byte) {
  auto ends = write_three(path);
  auto bytes = bytes_of(path);
  ASSERT_EQ(ends.size(), 4u); // the header and three batches
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    write_bytes(path, bytes.substr(0, size));
    auto whole = static_cast<std::size_t>(
      std::ranges::count_if(ends, [&](auto end) { return end <= size; }));
    auto expected_batches = whole > 0 ? whole - 1 : 0;
    EXPECT_EQ(read_all(path).size(), expected_batches) << size;
    auto log = open_journal(path).value();
    EXPECT_EQ(log->next_report(), expected_batches) << size;
    auto torn = size != 0 && (whole == 0 || ends[whole - 1] != size);
    EXPECT_EQ(log->events().size(), torn ? 1u : 0u) << size;
    ASSERT_TRUE(log->append_batch(9, batch(9, {})));
    auto entries = read_all(path);
    ASSERT_EQ(entries.size(), expected_batches + 1) << size;
    EXPECT_EQ(index_of(entries.back()), 9u);
  }
}

TEST_F(journal_test, cuts_a_tail_of_zeros) {
  auto ends = write_three(path);
  auto bytes = bytes_of(path);
  write_bytes(path, bytes + std::string(4096, '\0'));
  auto log = open_journal(path).value();
  ASSERT_EQ(log->events().size(), 1u);
  EXPECT_EQ(log->events()[0],
            (store_event{"journal_tail_cut", {{"bytes", 4096}}}));
  EXPECT_EQ(bytes_of(path), bytes);
}

TEST_F(journal_test, reports_the_number_of_a_damaged_line_and_reads_on) {
  auto ends = write_three(path);
  auto bytes = bytes_of(path);
  for (auto at = ends[1]; at + 1 < ends[2]; ++at) { // batch 1, third line
    auto damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    if (damaged[at] == '\n')
      continue; // two damaged lines instead
    write_bytes(path, damaged);
    auto reader = journal_reader::open(path).value();
    EXPECT_EQ(index_of(**reader.next()), 0u);
    auto bad = reader.next();
    ASSERT_FALSE(bad) << at;
    EXPECT_EQ(bad.error().code, ec::corrupt);
    EXPECT_NE(bad.error().message.find(path.string() + " line 3 "),
              std::string::npos);
    EXPECT_EQ(index_of(**reader.next()), 2u);
    auto log = open_journal(path).value();
    EXPECT_EQ(log->next_report(), 3u);
    ASSERT_EQ(log->events().size(), 1u);
    EXPECT_EQ(
      log->events()[0],
      (store_event{"journal_damaged", {{"lines", 1}, {"first_line", 3}}}));
  }
}

TEST_F(journal_test, leaves_a_file_alone_that_is_not_a_journal) {
  write_bytes(path, "a,b\n1,2\n");
  EXPECT_EQ(open_journal(path).error().code, ec::corrupt);
  EXPECT_EQ(bytes_of(path), "a,b\n1,2\n");
}

TEST_F(journal_test, stays_usable_when_the_disk_is_full) {
  small_disk disk{folder / "disk", "64k"};
  if (!disk)
    GTEST_SKIP() << "mounting a small tmpfs: " << disk.reason();
  auto file = disk.path() / "journal.jsonl";
  auto log = open_journal(file).value();
  std::uint64_t written = 0;
  auto big = metrics{{"text", std::string(3000, 'x')}};
  for (;;) {
    auto done = log->append_batch(0, batch(written, {big}));
    if (!done) {
      EXPECT_EQ(done.error().code, ec::storage);
      EXPECT_NE(done.error().message.find(file.string()), std::string::npos);
      break;
    }
    ++written;
    ASSERT_LT(written, 100u);
  }
  EXPECT_EQ(bytes_of(file).back(), '\n'); // cut back to the last whole line
  EXPECT_EQ(log->next_report(), written);
  EXPECT_EQ(read_all(file).size(), written);
  EXPECT_TRUE(log->append_event("small", 0)); // still fits
  EXPECT_EQ(read_all(file).size(), written + 1);
}

TEST_F(journal_test, does_not_claim_durability_after_a_failed_sync) {
  auto log = open_journal(path).value();
  EXPECT_TRUE(log->sync());
  ASSERT_TRUE(arm_failpoint("journal.sync=eio"));
  EXPECT_EQ(log->sync().error().code, ec::storage);
  ASSERT_TRUE(arm_failpoint(""));
  EXPECT_EQ(log->sync().error().code, ec::storage);
  EXPECT_TRUE(log->append_event("still_written", 0));
}

TEST_F(journal_test, notices_that_its_file_is_missing) {
  for (auto lose : {+[](const fs::path& x) { fs::remove(x); },
                    +[](const fs::path& x) { fs::rename(x, x.string() + "2"); },
                    +[](const fs::path& x) {
                      fs::remove(x);
                      write_bytes(x, "another file");
                    }}) {
    auto log = open_journal(path).value();
    ASSERT_TRUE(log->sync());
    lose(path);
    auto synced = log->sync();
    ASSERT_FALSE(synced);
    EXPECT_EQ(synced.error().code, ec::storage);
    EXPECT_NE(synced.error().message.find(path.string() + " is gone"),
              std::string::npos);
    fs::remove(path);
  }
}

TEST_F(journal_test, syncs_while_another_thread_appends) {
  auto log = open_journal(path).value();
  std::thread writer{[&] {
    for (std::uint64_t i = 0; i < 2000; ++i)
      EXPECT_TRUE(log->append_batch(0, batch(i, {{{"x", 1.5}}})));
  }};
  for (int i = 0; i < 20; ++i)
    EXPECT_TRUE(log->sync());
  writer.join();
  EXPECT_EQ(read_all(path).size(), 2000u);
}

TEST_F(journal_test, can_be_read_while_it_grows) {
  auto log = open_journal(path).value();
  auto reader = journal_reader::open(path).value();
  EXPECT_FALSE(reader.next().value());
  ASSERT_TRUE(log->append_batch(0, batch(0, {})));
  EXPECT_EQ(index_of(**reader.next()), 0u);
  EXPECT_FALSE(reader.next().value());
  ASSERT_TRUE(log->append_batch(0, batch(1, {})));
  auto other = journal_reader::open(path, reader.offset()).value();
  EXPECT_EQ(index_of(**other.next()), 1u);
}

// The open file stands for one on a network share, which stays as it was.
TEST_F(journal_test, can_be_opened_again_at_the_same_line) {
  auto ends = write_three(path);
  auto whole = bytes_of(path);
  write_bytes(path, whole.substr(0, ends[1] + 10));
  auto reader = journal_reader::open(path).value();
  EXPECT_EQ(index_of(**reader.next()), 0u);
  EXPECT_FALSE(reader.next().value());
  fs::rename(path, path.string() + ".before");
  write_bytes(path, whole);
  EXPECT_FALSE(reader.next().value());
  ASSERT_TRUE(reader.reopen());
  EXPECT_EQ(index_of(**reader.next()), 1u);
  EXPECT_EQ(index_of(**reader.next()), 2u);
  EXPECT_FALSE(reader.next().value());
}

TEST_F(journal_test, times_never_go_back_between_two_writers) {
  auto far = std::int64_t{4102444800} * 1000000; // the year 2100
  { auto log = open_journal(path).value(); }
  std::string line = R"({"event":"x","attempt":0,"time_us":)"
                     + std::to_string(far) + R"(,"fields":{})";
  append_sum(line);
  write_bytes(path, bytes_of(path) + line);
  auto log = open_journal(path).value();
  for (int i = 0; i < 1000; ++i)
    ASSERT_TRUE(log->append_event("y", 0));
  auto entries = read_all(path);
  ASSERT_EQ(entries.size(), 1001u);
  for (std::size_t i = 1; i < entries.size(); ++i)
    EXPECT_GT(std::get<journal_event>(entries[i]).time,
              std::get<journal_event>(entries[i - 1]).time);
}

TEST_F(journal_test, times_keep_their_pace_after_the_clock_was_set_back) {
  auto far = std::chrono::system_clock::now() + std::chrono::hours{1};
  { auto log = open_journal(path).value(); }
  std::string line =
    R"({"event":"x","attempt":0,"time_us":)"
    + std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(
                       far.time_since_epoch())
                       .count())
    + R"(,"fields":{})";
  append_sum(line);
  write_bytes(path, bytes_of(path) + line);
  auto log = open_journal(path).value();
  ASSERT_TRUE(log->append_event("begin", 0));
  auto begin = std::chrono::system_clock::now();
  while (std::chrono::system_clock::now() - begin
         < std::chrono::milliseconds{5}) {
  }
  ASSERT_TRUE(log->append_event("end", 0));
  auto entries = read_all(path);
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_GE(std::get<journal_event>(entries[2]).time
              - std::get<journal_event>(entries[1]).time,
            std::chrono::milliseconds{5});
}

TEST_F(journal_test, lines_of_two_writers_never_overlap) {
  auto first = open_journal(path).value();
  auto second = open_journal(path).value();
  for (std::uint64_t i = 0; i < 50; ++i) {
    ASSERT_TRUE(first->append_batch(0, batch(i, {{{"text", "of the first"}}})));
    ASSERT_TRUE(second->append_batch(1, batch(i, {{{"x", i}}})));
  }
  EXPECT_EQ(read_all(path).size(), 100u);
}

TEST_F(journal_test, refuses_a_format_it_does_not_know_and_changes_nothing) {
  std::string head = R"({"journal":2)";
  append_sum(head);
  auto bytes = head + "a line that this version cannot judge\n and a torn one";
  write_bytes(path, bytes);
  auto log = open_journal(path);
  ASSERT_FALSE(log);
  EXPECT_EQ(log.error().code, ec::unsupported);
  EXPECT_NE(log.error().message.find(path.string()), std::string::npos);
  EXPECT_EQ(bytes_of(path), bytes);
}

TEST_F(journal_test, finds_the_last_batch_without_the_rest) {
  EXPECT_EQ(read_last_batch(path).error().code, ec::storage);
  write_three(path);
  ASSERT_TRUE(open_journal(path).value()->append_event("end", 0));
  auto last = read_last_batch(path).value();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->index, 2u);
}

TEST_F(journal_test, adds_up_the_seconds_that_each_driver_had_the_run) {
  std::string lines;
  append_header_line(lines);
  auto event = [&](std::int64_t second, std::string_view kind) {
    std::string line;
    append_event_line(line, 0, second * 1'000'000, kind, {});
    lines += line;
  };
  auto report = [&](std::int64_t second, std::uint64_t index) {
    std::string line;
    append_batch_line(line, 0, second * 1'000'000, batch(index, {{{"x", 1}}}),
                      "", 0);
    lines += line;
  };
  event(10, "attempt_begun");
  report(13, 0);
  event(15, "ranks_failed");
  event(16, "attempt_begun"); // of the same driver, which is killed
  report(100, 1);             // found in a checkpoint by the next one
  event(101, "journal_completed");
  event(102, "driver_lost");
  event(110, "attempt_begun");
  report(114, 2);
  event(500, "run_ended");          // perhaps by the next one
  event(501, "processes_left");     // of the driver that has ended
  event(700, "checkpoint_adopted"); // by the next one
  event(701, "attempt_begun");
  report(702, 3); // is under way, or was killed
  write_bytes(path, lines);
  EXPECT_DOUBLE_EQ(read_driven_seconds(path).value(), 6 + 4 + 1);
  EXPECT_EQ(read_driven_seconds(folder / "none").error().code, ec::storage);
}
