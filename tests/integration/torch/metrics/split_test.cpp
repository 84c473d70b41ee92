// Metrics over several ranks, which are threads in a local group.

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "split_metrics.hpp"
#include "warnings.hpp"

namespace troupe::internal::test {

namespace {

using tensors = std::vector<at::Tensor>;

bool close(const tensors& xs, const tensors& ys) {
  return std::equal(
    xs.begin(), xs.end(), ys.begin(), ys.end(), [](auto& x, auto& y) {
      return x.sizes() == y.sizes() && x.allclose(y, 1e-9, 1e-12, true);
    });
}

bool same_bits(const tensors& xs, const tensors& ys) {
  return std::equal(
    xs.begin(), xs.end(), ys.begin(), ys.end(), [](auto& x, auto& y) {
      return x.sizes() == y.sizes()
             && std::memcmp(x.contiguous().data_ptr(),
                            y.contiguous().data_ptr(), x.nbytes())
                  == 0;
    });
}

bool same_bits(const tensor_map& xs, const tensor_map& ys) {
  return std::equal(xs.begin(), xs.end(), ys.begin(), ys.end(),
                    [](auto& x, auto& y) {
                      return x.first == y.first
                             && same_bits(tensors{x.second}, tensors{y.second});
                    });
}

std::string text(const tensors& xs) {
  std::ostringstream out;
  out.precision(17);
  for (auto& x : xs)
    for (auto flat = x.to(at::kDouble).flatten(); auto y : flat.unbind())
      out << y.item<double>() << ' ';
  return out.str();
}

class any_split : public testing::TestWithParam<splittable> {
protected:
  /// The value of samples 0 to *end* - 1 in one process.
  tensors expected(long end) const {
    auto metric = GetParam().make({});
    metric.update({0, end});
    return metric.compute();
  }

  /// All ranks have the *expected* value in the same bits.
  static void check(const std::vector<tensors>& of_ranks,
                    const tensors& expected) {
    for (auto& x : of_ranks) {
      EXPECT_TRUE(same_bits(x, of_ranks.front()));
      EXPECT_TRUE(close(x, expected)) << text(x) << "is not " << text(expected);
    }
  }

  static constexpr int most_ranks = 4;
};

/// No rank failed.
auto no_failures() {
  return testing::Each(testing::IsEmpty());
}

} // namespace

TEST_P(any_split, gives_the_value_of_one_process_and_keeps_the_states) {
  constexpr unsigned seeds = 8;
  auto whole = expected(GetParam().samples);
  for (int size = 1; size <= most_ranks; ++size) {
    SCOPED_TRACE(std::to_string(size) + " ranks");
    auto ranks = static_cast<std::size_t>(size);
    std::vector<std::vector<tensors>> values(seeds,
                                             std::vector<tensors>(ranks));
    auto failures = run_on_planes(size, [&](int rank, auto plane) {
      auto at = static_cast<std::size_t>(rank);
      for (unsigned seed = 0; seed < seeds; ++seed) {
        auto metric = GetParam().make(plane);
        auto batches = split_of(GetParam().samples, size, seed);
        for (auto batch : batches[at])
          metric.update(batch);
        auto before = metric.state();
        values[seed][at] = metric.compute();
        test::check(same_bits(metric.state(), before), "another state");
      }
    });
    EXPECT_THAT(failures, no_failures());
    for (auto& of_ranks : values)
      check(of_ranks, whole);
  }
}

TEST_P(any_split, waits_for_no_rank_without_updates) {
  for (int size = 2; size <= most_ranks; ++size) {
    SCOPED_TRACE(std::to_string(size) + " ranks");
    auto ranks = static_cast<std::size_t>(size);
    // Rank r updates only in phase r, and no rank resets.
    auto end = [&](std::size_t phase) {
      return GetParam().samples * static_cast<long>(phase + 1) / size;
    };
    std::vector<std::vector<tensors>> values(ranks,
                                             std::vector<tensors>(ranks));
    auto failures = run_on_planes(size, [&](int rank, auto plane) {
      auto at = static_cast<std::size_t>(rank);
      auto metric = GetParam().make(plane);
      for (std::size_t phase = 0; phase < ranks; ++phase) {
        if (phase == at)
          metric.update({phase == 0 ? 0 : end(phase - 1), end(phase)});
        values[phase][at] = metric.compute();
      }
    });
    EXPECT_THAT(failures, no_failures());
    for (std::size_t phase = 0; phase < ranks; ++phase)
      check(values[phase], expected(end(phase)));
  }
}

INSTANTIATE_TEST_SUITE_P(all, any_split, testing::ValuesIn(all_splittable()),
                         [](auto& info) { return info.param.name; });

} // namespace troupe::internal::test
