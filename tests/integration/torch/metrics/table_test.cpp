// Every metric against TorchMetrics, by a table that
// tools/torchmetrics_table.py writes.

#include <set>

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "subject.hpp"
#include "table.hpp"
#include "troupe/trainers/train_context.hpp"

namespace troupe::internal::test {

namespace {

/// Drops the warnings of edge cases, which these tests cause on purpose.
class quiet : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

subject make_subject(const table_case& x) {
  static const auto all = [] {
    auto result = classification_subjects();
    result.merge(number_subjects());
    return result;
  }();
  return all.at(x.metric)(x.options);
}

/// The difference of what *f* returns and *expected*, which may be "throws".
template <class F>
std::string difference_of(F f, const nlohmann::json& expected) {
  auto throws = expected == "throws";
  try {
    auto value = f();
    return throws ? "no error" : difference(value, expected);
  } catch (const train_error& x) {
    return throws ? "" : x.what();
  }
}

std::set<std::string> metrics_of_the_table() {
  std::set<std::string> result;
  for (auto& x : metric_table())
    result.insert(x.metric);
  return result;
}

class torchmetrics_table : public testing::TestWithParam<std::string> {
protected:
  template <class F>
  void for_each_case(F f) {
    for (auto& x : metric_table()) {
      if (x.metric != GetParam())
        continue;
      SCOPED_TRACE(x.name);
      f(x, make_subject(x));
    }
  }

  quiet handler_;
  c10::WarningUtils::WarningHandlerGuard guard_{&handler_};
};

} // namespace

TEST_P(torchmetrics_table, has_our_values_over_all_batches) {
  for_each_case([](const table_case& x, const subject& ours) {
    EXPECT_EQ(difference_of([&] { return ours.total(x.batches); }, x.value),
              "");
  });
}

TEST_P(torchmetrics_table, has_our_values_of_each_batch) {
  for_each_case([](const table_case& x, const subject& ours) {
    for (std::size_t i = 0; i < x.batches.size(); ++i)
      EXPECT_EQ(
        difference_of([&] { return ours.forward(x.batches[i]); }, x.forward[i]),
        "")
        << "batch " << i;
  });
}

TEST_P(torchmetrics_table, has_our_values_of_merged_metrics) {
  for_each_case([](const table_case& x, const subject& ours) {
    if (ours.merged) {
      EXPECT_EQ(difference_of([&] { return ours.merged(x.batches); }, x.value),
                "");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(all, torchmetrics_table,
                         testing::ValuesIn(metrics_of_the_table()),
                         [](auto& info) { return info.param; });

} // namespace troupe::internal::test
