#include <random>

#include <gtest/gtest.h>

#include "tests/support/broken_off.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/tracker_records.hpp"
#include "troupe/callbacks/csv/csv_sink.hpp"
#include "troupe/callbacks/tracking/option_fields.hpp"

namespace troupe::internal {
namespace {

class csv_crash_test : public testing::Test {
protected:
  // The file without a crash. The columns are in the order in which batches
  // introduced them.
  std::string undisturbed(std::size_t batch) {
    test::temporary_folder folder;
    test::broken_off writer{make, test::tracked_run_in(folder.path()),
                            run_.all()};
    writer.batch = batch;
    EXPECT_TRUE(writer.run_until("none", 1));
    return test::bytes_of(folder / "metrics.csv");
  }

  static std::unique_ptr<sink> make() { return sink_from_json<csv_sink>("{}"); }

  test::tracker_records run_ = test::hard_run();
  test::temporary_folder folder_;
  tracked_run tracked_ = test::tracked_run_in(folder_.path());
  fs::path file_ = folder_ / "metrics.csv";
};

TEST_F(csv_crash_test, loses_and_repeats_no_row_wherever_it_is_killed) {
  auto whole = undisturbed(7);
  for (const auto* point :
       {"record_file.append", "record_file.commit", "csv.replaced",
        "replace.written", "replace.renamed", "storage.sync_file"})
    for (unsigned n : {1, 2}) {
      test::broken_off writer{make, tracked_, run_.all()};
      EXPECT_FALSE(writer.run_until(point, n)) << point;
      EXPECT_FALSE(writer.run_until("record_file.commit", n));
      EXPECT_TRUE(writer.run_until("none", 1));
      EXPECT_EQ(test::bytes_of(file_), whole) << point << ' ' << n;
      fs::remove(file_);
    }
}

TEST_F(csv_crash_test, loses_and_repeats_no_row_at_fifty_random_moments) {
  auto whole = undisturbed(3);
  std::mt19937 random{50};
  auto size = [this] {
    boost::system::error_code missing;
    auto result = fs::file_size(file_, missing);
    return missing ? 0 : result;
  };
  for (int round = 0; round < 10; ++round) {
    test::broken_off writer{make, tracked_, run_.all()};
    writer.batch = 3;
    for (int kill = 0; kill < 5; ++kill)
      writer.run_until_size(size, random() % whole.size());
    EXPECT_TRUE(writer.run_until("none", 1));
    EXPECT_EQ(test::bytes_of(file_), whole);
    fs::remove(file_);
  }
}

} // namespace
} // namespace troupe::internal
