#include "troupe/callbacks/wandb/wandb_files.hpp"

#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"
#include "troupe/callbacks/wandb/wandb_records.hpp"

namespace troupe::internal {
namespace {

using test::bytes_of;
using test::temporary_folder;
using test::write_bytes;

std::string from_hex(const std::string& digits) {
  std::string result;
  for (std::size_t i = 0; i < digits.size(); i += 2)
    result += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return result;
}

std::vector<std::string> records_of(const fs::path& path) {
  std::vector<std::string> result;
  auto log =
    wandb_log::reopen(path, 7, [&](auto x) { result.emplace_back(x); });
  EXPECT_TRUE(log) << (log ? "" : log.error().message);
  return result;
}

// A file that W&B's own reader and uploader accept.
const auto golden = from_hex(
  "3a572642e1be00"
  "8eadc72e0f00010801aa010a0a080a0674726f757065"
  "f020f94327000108028a01220a066162633132331a0170220c0a0a0a026c72820103302e"
  "318a01060880e2cfaa06"
  "eccc89e15200010803124e0a0c0a046c6f7373820103302e350a0b0a055f737465708201"
  "01310a100a085f72756e74696d65820103322e350a1b0a0a5f74696d657374616d708201"
  "0c313730303030303030322e3512020801"
  "06a13e574e000108041a4a0a0c0a046c6f7373820103302e350a0b0a055f737465708201"
  "01310a100a085f72756e74696d65820103322e350a1b0a0a5f74696d657374616d708201"
  "0c313730303030303030322e35"
  "504d8d1207000108059201020800");

TEST(wandb_log_test, writes_the_file_that_wandb_reads_byte_for_byte) {
  temporary_folder folder;
  auto path = folder / "run-abc123.wandb";
  auto log = wandb_log::create(path);
  ASSERT_TRUE(log);
  wandb_records records;
  wandb_run run;
  run.id = "abc123";
  run.project = "p";
  run.config = {{"lr", wandb_json(0.1)}};
  run.start_time =
    wandb_run::clock::time_point{std::chrono::seconds{1700000000}};
  std::vector<wandb_item> row{{"loss", wandb_json(0.5)},
                              {"_step", wandb_json(1)},
                              {"_runtime", wandb_json(2.5)},
                              {"_timestamp", wandb_json(1700000002.5)}};
  log->append(records.header());
  log->append(records.run(run));
  log->append(records.history(1, row));
  log->append(records.summary(row));
  log->append(records.exit(0, std::chrono::seconds{0}));
  ASSERT_TRUE(log->flush());
  EXPECT_EQ(bytes_of(path), golden);
  EXPECT_EQ(log->size(), 263u);
}

TEST(wandb_log_test, keeps_records_of_any_size_over_block_borders) {
  temporary_folder folder;
  auto path = folder / "x.wandb";
  std::mt19937 random{4};
  std::vector<std::string> written;
  auto log = wandb_log::create(path);
  ASSERT_TRUE(log);
  // A third of the sizes end within a few bytes of a block's end.
  for (std::size_t i = 0; i < 300; ++i) {
    auto left = 32768 - (7 + log->size()) % 32768;
    auto size = i % 3 == 0   ? random() % 100
                : i % 3 == 1 ? random() % 100000
                             : left + random() % 20;
    written.emplace_back(size, static_cast<char>(i));
    log->append(written.back());
    ASSERT_TRUE(log->flush());
  }
  EXPECT_EQ(records_of(path), written);
}

TEST(wandb_log_test, writes_nothing_once_the_run_is_over) {
  temporary_folder folder;
  auto path = folder / "x.wandb";
  std::stop_source over;
  auto log = wandb_log::create(path, over.get_token());
  ASSERT_TRUE(log);
  log->append("first");
  ASSERT_TRUE(log->flush());
  write_bytes(path, bytes_of(path) + "torn"); // Not cut off: the run is over.
  auto before = bytes_of(path);
  over.request_stop();
  log->append("second");
  EXPECT_EQ(log->flush().error().code, ec::stopped);
  EXPECT_FALSE(wandb_log::reopen(
    path, 7, [](auto) {}, over.get_token()));
  EXPECT_FALSE(wandb_log::create(folder / "y.wandb", over.get_token()));
  EXPECT_EQ(bytes_of(path), before);
  EXPECT_FALSE(fs::exists(folder / "y.wandb"));
}

TEST(wandb_log_test, fills_a_block_whatever_is_left_of_it) {
  for (std::size_t left = 0; left <= 15; ++left) {
    temporary_folder folder;
    auto path = folder / "x.wandb";
    auto log = wandb_log::create(path);
    ASSERT_TRUE(log);
    // Header 7, chunk header 7.
    std::vector<std::string> written{std::string(32768 - 14 - left, 'a'),
                                     "second", ""};
    for (auto& x : written)
      log->append(x);
    ASSERT_TRUE(log->flush());
    EXPECT_EQ(records_of(path), written) << left;
  }
}

TEST(wandb_log_test, cuts_off_a_record_torn_at_any_byte) {
  temporary_folder folder;
  auto path = folder / "x.wandb";
  for (std::size_t size = golden.size() - 1; size > golden.size() - 100;
       --size) {
    write_bytes(path, golden.substr(0, size));
    std::size_t whole = 0;
    auto log = wandb_log::reopen(path, 7, [&](auto) { ++whole; });
    ASSERT_TRUE(log);
    EXPECT_EQ(fs::file_size(path), log->size());
    auto before = whole;
    log->append("more");
    ASSERT_TRUE(log->flush());
    EXPECT_EQ(records_of(path).size(), before + 1);
    EXPECT_EQ(records_of(path).back(), "more");
  }
}

TEST(wandb_log_test, treats_a_flipped_bit_as_the_end) {
  temporary_folder folder;
  auto path = folder / "x.wandb";
  auto damaged = golden;
  damaged[damaged.size() - 3] ^= 1;
  write_bytes(path, damaged);
  EXPECT_EQ(records_of(path).size(), 4u);
  EXPECT_EQ(fs::file_size(path), golden.size() - 14);
}

TEST(wandb_log_test, begins_no_log_where_a_file_is_even_an_empty_one) {
  temporary_folder folder;
  auto path = folder / "x.wandb";
  for (auto bytes : {"", "theirs"}) {
    write_bytes(path, bytes);
    EXPECT_FALSE(wandb_log::create(path));
    EXPECT_EQ(bytes_of(path), bytes);
  }
}

TEST(wandb_log_test, does_not_make_a_removed_log_again) {
  temporary_folder folder;
  auto path = folder / "x.wandb";
  EXPECT_FALSE(wandb_log::reopen(path, 0, [](auto) {}));
  EXPECT_FALSE(fs::exists(path));
}

TEST(wandb_log_test, refuses_a_file_that_lost_what_was_confirmed) {
  temporary_folder folder;
  auto path = folder / "x.wandb";
  write_bytes(path, golden);
  auto log = wandb_log::reopen(path, golden.size() + 1, [](auto) {});
  ASSERT_FALSE(log);
  EXPECT_EQ(log.error().code, ec::corrupt);
  EXPECT_NE(log.error().message.find(path.string()), std::string::npos);
  EXPECT_EQ(bytes_of(path), golden);
}

} // namespace
} // namespace troupe::internal
