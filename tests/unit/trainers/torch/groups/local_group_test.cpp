#include "troupe/trainers/torch/groups/local_group.hpp"

#include <memory>

#include <gtest/gtest.h>

#include "tests/support/torch_ranks.hpp"

namespace troupe::internal {

namespace {

using test::check;
using test::group_ptr;
using tensors = std::vector<at::Tensor>;
using op_type = c10d::ReduceOp::RedOpType;

constexpr std::int64_t chunk = shared_segment::chunk_bytes;

/// What *rank* contributes: small numbers, so that every operation is exact in
/// every type, and different ones everywhere.
at::Tensor part(int rank, std::int64_t size, at::ScalarType type) {
  auto x = (at::arange(size, at::kLong) * 7 + rank * 3) % 5;
  return type == at::kBool ? x.gt(2) : (x - 1).abs().to(type);
}

/// Numbers whose sum depends on the order, with the same bits everywhere: each
/// step is exact or rounded as IEEE 754 says.
at::Tensor fractions(int rank, std::int64_t size) {
  return ((at::arange(size, at::kLong) * (rank + 3)) % 1009).to(at::kFloat)
         / (rank + 7.0F);
}

bool has_bits(at::ScalarType type) {
  return at::isIntegralType(type, true);
}

at::Tensor fold(op_type op, const tensors& parts) {
  auto type = parts[0].scalar_type();
  auto wide = type == at::kBool          ? at::kBool
              : at::isFloatingType(type) ? at::kDouble
                                         : at::kLong;
  auto x = parts[0].to(wide);
  for (std::size_t r = 1; r < parts.size(); ++r) {
    auto y = parts[r].to(wide);
    switch (op) {
      case op_type::SUM:
      case op_type::AVG:
        x = wide == at::kBool ? x.logical_or(y) : x + y;
        break;
      case op_type::PRODUCT:
        x = wide == at::kBool ? x.logical_and(y) : x * y;
        break;
      case op_type::MIN:
        x = at::minimum(x, y);
        break;
      case op_type::MAX:
        x = at::maximum(x, y);
        break;
      case op_type::BAND:
        x = x.bitwise_and(y);
        break;
      case op_type::BOR:
        x = x.bitwise_or(y);
        break;
      default:
        x = x.bitwise_xor(y);
    }
  }
  if (op == op_type::AVG)
    x = at::div(x, static_cast<double>(parts.size())).to(at::kDouble);
  if (op == op_type::AVG && has_bits(type))
    x = x.trunc();
  return x.to(type);
}

void run(int size, const std::function<void(group_ptr, int)>& body,
         bool processes, bool two_hosts = false) {
  std::unique_ptr<test::meeting_place> place;
  if (two_hosts)
    place = std::make_unique<test::hierarchical_meeting_place>(size, processes);
  else
    place = std::make_unique<test::local_meeting_place>(std::max(size, 2));
  auto on_rank = [&](int rank) {
    auto group = place->group(0, rank, size);
    body(group, rank);
    group->barrier()->wait();
  };
  auto failures = processes ? test::run_processes(size, on_rank)
                            : test::run_threads(size, on_rank);
  for (auto& failure : failures)
    EXPECT_EQ(failure, "");
}

void expect_bits(const at::Tensor& x, const at::Tensor& y,
                 const std::string& what) {
  check(x.scalar_type() == y.scalar_type() && at::equal(x, y),
        what + " is not what it should be");
}

constexpr at::ScalarType all_types[] = {
  at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kChar,
  at::kByte,  at::kShort,  at::kInt,  at::kLong,     at::kBool};

/// Of `local`, and of `hierarchical` on two hosts.
class memory_group_test
  : public testing::TestWithParam<std::tuple<int, bool, bool>> {
protected:
  int size() const { return std::get<0>(GetParam()); }
  bool two_hosts() const { return std::get<2>(GetParam()); }

  void on_ranks(const std::function<void(group_ptr, int)>& body) {
    run(size(), body, std::get<1>(GetParam()), two_hosts());
  }
};

TEST_P(memory_group_test, reduces_every_type_with_every_operation) {
  on_ranks([this](group_ptr group, int rank) {
    for (auto type : all_types)
      for (auto op :
           {op_type::SUM, op_type::AVG, op_type::PRODUCT, op_type::MIN,
            op_type::MAX, op_type::BAND, op_type::BOR, op_type::BXOR}) {
        if ((op >= op_type::BAND && !has_bits(type))
            || (op == op_type::AVG && type == at::kBool))
          continue;
        for (std::int64_t count : {0, 1, 1021, 40'003}) {
          tensors parts;
          for (int r = 0; r < size(); ++r)
            parts.push_back(part(r, count, type));
          tensors x{parts[static_cast<std::size_t>(rank)].clone()};
          c10d::AllreduceOptions options;
          options.reduceOp = op;
          group->allreduce(x, options)->wait();
          expect_bits(x[0], fold(op, parts),
                      std::string{toString(type)} + " with operation "
                        + std::to_string(op) + ", " + std::to_string(count));
        }
      }
  });
}

TEST_P(memory_group_test, reduces_tensors_of_many_chunks_to_the_same_bits) {
  on_ranks([this](group_ptr group, int rank) {
    for (std::int64_t count : {chunk / 4, chunk + 3, 3 * chunk / 4 + 17}) {
      tensors x{fractions(rank, count)};
      group->allreduce(x)->wait();
      auto sum_of = [&](int first, int end) {
        auto sum = fractions(first, count);
        for (int r = first + 1; r < end; ++r)
          sum += fractions(r, count);
        return sum;
      };
      auto border = two_hosts() ? (size() + 1) / 2 : size();
      auto sum = sum_of(0, border);
      if (border < size())
        sum += sum_of(border, size());
      expect_bits(x[0], sum, "the sum in order of rank, then of host");
    }
  });
}

TEST_P(memory_group_test, moves_tensors_of_any_size) {
  on_ranks([this](group_ptr group, int rank) {
    for (std::int64_t count :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{999}, chunk / 8 + 5,
          chunk / 2 + 7}) {
      auto root = size() - 1;
      tensors all;
      for (int r = 0; r < size(); ++r)
        all.push_back(part(r, count, at::kLong));
      auto mine = [&] { return all[static_cast<std::size_t>(rank)].clone(); };
      tensors x{mine()};
      c10d::BroadcastOptions from;
      from.rootRank = root;
      group->broadcast(x, from)->wait();
      expect_bits(x[0], all.back(), "broadcast");
      std::vector<tensors> lists(1);
      for (int r = 0; r < size(); ++r)
        lists[0].push_back(at::empty({count}, at::kLong));
      x = {mine()};
      group->allgather(lists, x)->wait();
      for (int r = 0; r < size(); ++r)
        expect_bits(lists[0][static_cast<std::size_t>(r)],
                    all[static_cast<std::size_t>(r)], "all-gather");
      auto whole = at::empty({count * size()}, at::kLong);
      auto in = mine();
      test::all_gather_single(*group, whole, in)->wait();
      expect_bits(whole, at::cat(all), "all-gather of one tensor");
      c10d::ScatterOptions scatter;
      scatter.rootRank = root;
      tensors out{at::empty({count}, at::kLong)};
      std::vector<tensors> given;
      if (rank == root)
        given.push_back(all);
      group->scatter(out, given, scatter)->wait();
      expect_bits(out[0], mine(), "scatter");
    }
  });
}

TEST_P(memory_group_test, reduces_to_one_rank_and_to_a_part_for_each) {
  on_ranks([this](group_ptr group, int rank) {
    for (std::int64_t count :
         {std::int64_t{3}, std::int64_t{5003}, chunk / 4}) {
      tensors all;
      for (int r = 0; r < size(); ++r)
        all.push_back(part(r, count * size(), at::kFloat));
      auto mine = all[static_cast<std::size_t>(rank)].clone();
      auto sum = fold(op_type::SUM, all);
      tensors x{mine.clone()};
      c10d::ReduceOptions to;
      to.rootRank = 0;
      group->reduce(x, to)->wait();
      expect_bits(x[0], rank == 0 ? sum : mine, "reduce");
      auto own = sum.narrow(0, rank * count, count);
      auto out = at::empty({count}, at::kFloat);
      test::reduce_scatter_single(*group, out, mine)->wait();
      expect_bits(out, own, "reduce-scatter of one tensor");
      tensors outs{at::empty({count}, at::kFloat)};
      std::vector<tensors> lists{mine.clone().chunk(size())};
      group->reduce_scatter(outs, lists)->wait();
      expect_bits(outs[0], own, "reduce-scatter");
    }
  });
}

TEST_P(memory_group_test,
       keeps_the_strides_of_tensors_that_are_not_contiguous) {
  on_ranks([this](group_ptr group, int rank) {
    auto whole = at::full({40, 50}, rank + 1.0);
    tensors x{whole.t().narrow(0, 3, 20)};
    group->allreduce(x)->wait();
    auto total = size() * (size() + 1) / 2.0;
    check(x[0].eq(total).all().item<bool>(), "a part of the tensor is wrong");
    check(whole.narrow(1, 0, 3).eq(rank + 1.0).all().item<bool>(),
          "the rest has changed");
  });
}

TEST_P(memory_group_test, adds_sparse_tensors) {
  on_ranks([this](group_ptr group, int rank) {
    auto sparse = [](int r) { // Rank 0 has no entries.
      auto rows = at::arange(r, at::kLong).unsqueeze(0) * 2;
      return at::sparse_coo_tensor(rows, at::full({r, 3}, r + 1.0F), {20, 3});
    };
    auto sum = at::zeros({20, 3});
    for (int r = 0; r < size(); ++r)
      sum += sparse(r).to_dense();
    tensors x{sparse(rank)};
    group->allreduce(x)->wait();
    check(x[0].is_sparse(), "the result is dense");
    expect_bits(x[0].to_dense(), sum, "the sum");
  });
}

TEST_P(memory_group_test, runs_many_collectives_in_the_order_of_the_calls) {
  on_ranks([this](group_ptr group, int rank) {
    std::vector<tensors> values;
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (int i = 0; i < 300; ++i)
      values.push_back({at::full({i % 7 == 0 ? 9000 : 3}, rank + i + 0.0)});
    for (auto& x : values)
      works.push_back(group->allreduce(x));
    for (int i = 0; i < 300; ++i) {
      auto& work = works[static_cast<std::size_t>(i)];
      work->getFuture()->wait();
      check(work->getFuture()->value().toTensorVector()[0].is_same(
              values[static_cast<std::size_t>(i)][0]),
            "the future holds another tensor");
      auto sum = size() * i + size() * (size() - 1) / 2.0;
      check(values[static_cast<std::size_t>(i)][0].eq(sum).all().item<bool>(),
            "sum " + std::to_string(i));
    }
  });
}

std::string
name_of(const testing::TestParamInfo<std::tuple<int, bool, bool>>& info) {
  return std::to_string(std::get<0>(info.param))
         + (std::get<1>(info.param) ? "_processes" : "_threads")
         + (std::get<2>(info.param) ? "_on_two_hosts" : "");
}

INSTANTIATE_TEST_SUITE_P(ranks, memory_group_test,
                         testing::Combine(testing::Values(2, 3, 4),
                                          testing::Bool(), testing::Bool()),
                         name_of);

TEST(local_group_dtype_test, carries_complex_numbers_and_nan) {
  run(
    2,
    [](group_ptr group, int rank) {
      tensors x{at::full({5}, c10::complex<double>(1.0 + rank, -2.0))};
      group->allreduce(x)->wait();
      check(at::equal(x[0], at::full({5}, c10::complex<double>(3.0, -4.0))),
            "the complex sum is wrong");
      x = {at::full({5}, rank == 0 ? NAN : 1.0)};
      c10d::AllreduceOptions least;
      least.reduceOp = c10d::ReduceOp::MIN;
      group->allreduce(x, least)->wait();
      check(x[0].isnan().all().item<bool>(), "NaN was lost");
    },
    false);
}

TEST(local_group_dtype_test, averages_integers_whose_sum_does_not_fit) {
  for (auto two_hosts : {false, true})
    run(
      2,
      [](group_ptr group, int) {
        auto expect = [&](at::ScalarType type, std::int64_t value) {
          tensors x{at::full({3000}, value, type)};
          c10d::AllreduceOptions mean;
          mean.reduceOp = c10d::ReduceOp::AVG;
          group->allreduce(x, mean)->wait();
          expect_bits(x[0], at::full({3000}, value, type), toString(type));
        };
        expect(at::kChar, 100);
        expect(at::kChar, -128);
        expect(at::kByte, 250);
        expect(at::kShort, -30'000);
        expect(at::kInt, 2'000'000'000);
      },
      false, two_hosts);
}

TEST(local_group_dtype_test, averages_half_precision_whose_sum_does_not_fit) {
  for (auto two_hosts : {false, true})
    run(
      2,
      [](group_ptr group, int rank) {
        for (std::int64_t count : {10, 300'000}) {
          // 65504 is the largest.
          auto of = [count](double value) {
            return at::full({count, 2}, value, at::kHalf);
          };
          auto mine = of(rank == 0 ? 40'000 : 48'000);
          auto mean = of(44'000);
          tensors x{mine.clone()};
          c10d::AllreduceOptions all;
          all.reduceOp = c10d::ReduceOp::AVG;
          group->allreduce(x, all)->wait();
          expect_bits(x[0], mean, "all-reduce");
          x = {mine.t()};
          group->allreduce(x, all)->wait();
          expect_bits(mine, mean, "all-reduce of a transposed tensor");
          x = {at::view_as_complex(of(rank == 0 ? 40'000 : 48'000))};
          group->allreduce(x, all)->wait();
          expect_bits(at::view_as_real(x[0]), mean, "complex numbers");
          mine = of(rank == 0 ? 40'000 : 48'000);
          x = {mine.clone()};
          c10d::ReduceOptions one;
          one.reduceOp = c10d::ReduceOp::AVG;
          one.rootRank = 1;
          group->reduce(x, one)->wait();
          expect_bits(x[0], rank == 1 ? mean : mine, "reduce");
          x = {of(0)};
          std::vector<tensors> lists{{mine, mine}};
          c10d::ReduceScatterOptions parts;
          parts.reduceOp = c10d::ReduceOp::AVG;
          group->reduce_scatter(x, lists, parts)->wait();
          expect_bits(x[0], mean, "reduce-scatter");
        }
      },
      false, two_hosts);
}

TEST(local_group_dtype_test, sends_the_numbers_of_views_not_their_memory) {
  run(
    2,
    [](group_ptr outer, int rank) {
      // The outer group would hand on a copy, and drop what is written there.
      auto group = outer->getBackend(at::kCPU);
      auto number = [](double re, double im) {
        return at::full({4}, c10::complex<double>(re, im));
      };
      auto conjugated = [&](int r) { return number(1.0 + r, 2.0 + r).conj(); };
      auto negated = [&](int r) { return at::imag(conjugated(r)); };
      check(conjugated(0).is_conj() && negated(0).is_neg(), "they are plain");
      tensors x{conjugated(rank)};
      group->allreduce(x)->wait();
      check(at::equal(x[0], number(3, -5)), "all-reduce");
      x = {negated(rank)};
      group->allreduce(x)->wait();
      check(x[0].eq(-5).all().item<bool>(), "all-reduce of a negated view");
      x = {conjugated(rank)};
      group->broadcast(x)->wait();
      check(at::equal(x[0], number(1, -2)), "broadcast");
      std::vector<tensors> lists{{number(0, 0).conj(), number(0, 0)}};
      x = {conjugated(rank)};
      group->allgather(lists, x)->wait();
      check(at::equal(lists[0][0], number(1, -2))
              && at::equal(lists[0][1], number(2, -3)),
            "all-gather");
      tensors out{number(0, 0).conj()};
      lists = {{conjugated(0), conjugated(1)}};
      group->reduce_scatter(out, lists)->wait();
      check(at::equal(out[0], rank == 0 ? number(2, -4) : number(4, -6)),
            "reduce-scatter");
      out = {number(0, 0).conj()};
      if (rank != 0)
        lists.clear();
      group->scatter(out, lists)->wait();
      check(at::equal(out[0], rank == 0 ? number(1, -2) : number(2, -3)),
            "scatter");
    },
    false);
}

TEST(local_group_dtype_test, rounds_half_precision_once) {
  run(
    3,
    [](group_ptr group, int rank) {
      for (auto type : {at::kHalf, at::kBFloat16}) {
        auto of = [&](int r) { return fractions(r, 777).to(type); };
        tensors x{of(rank)};
        group->allreduce(x)->wait();
        auto sum =
          of(0).to(at::kFloat) + of(1).to(at::kFloat) + of(2).to(at::kFloat);
        expect_bits(x[0], sum.to(type), toString(type));
      }
    },
    false);
}

} // namespace

} // namespace troupe::internal
