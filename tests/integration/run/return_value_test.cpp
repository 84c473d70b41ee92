// What the loops of a run return.

#include <fcntl.h>

#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/integration/run/run_test.hpp"
#include "troupe/runtime/store/run_store.hpp"

namespace troupe::internal::test {

using testing::ElementsAre;
using testing::HasSubstr;

namespace {

struct returning {
  int fails_at = -1; ///< Attempt in which rank 1 fails once rank 0 is done.
  int steps = 0;

  TROUPE_FIELDS(fails_at, steps)
};

/// Each rank returns its losses.
std::vector<double> losses(train_context& context, const returning& cfg) {
  if (static_cast<int>(context.attempt()) == cfg.fails_at
      && context.rank() == 1)
    throw std::runtime_error{"as planned"};
  for (int step = 0; step < cfg.steps; ++step)
    context.report({{"step", step}});
  return {0.5 * context.rank(), static_cast<double>(context.attempt())};
}

std::string too_much(train_context&) {
  return std::string(max_return_bytes + 1, 'x');
}

} // namespace

class return_value_test : public run_test {
protected:
  template <class F, class... Config>
  result fit(F loop, const Config&... cfg) {
    train_options options{.scaling = {.num_workers = 2}, .run = config()};
    options.run.failure.max_failures = 1;
    return data_parallel_trainer{loop, cfg..., std::move(options)}.fit();
  }
};

TEST_F(return_value_test, each_rank_has_its_own_in_the_result) {
  auto x = fit(losses, returning{});
  ASSERT_FALSE(x.error) << x.error->message;
  EXPECT_THAT(x.return_value<std::vector<double>>().value(), ElementsAre(0, 0));
  EXPECT_THAT(x.return_value<std::vector<double>>(1).value(),
              ElementsAre(0.5, 0));
  // The run's folder has them, too.
  auto later = result::from_path(run_path()).value();
  EXPECT_THAT(later.return_value<std::vector<double>>(1).value(),
              ElementsAre(0.5, 0));
}

TEST_F(return_value_test, another_type_or_rank_is_an_error_with_the_file) {
  auto x = fit(losses, returning{});
  auto type = x.return_value<int>();
  ASSERT_FALSE(type);
  EXPECT_EQ(type.error().code, ec::invalid_argument);
  EXPECT_THAT(type.error().message, HasSubstr("rank_0.bin"));
  EXPECT_THAT(type.error().message, HasSubstr("std::vector<double"));
  auto rank = x.return_value<std::vector<double>>(2);
  ASSERT_FALSE(rank);
  EXPECT_THAT(rank.error().message, HasSubstr("rank_2.bin does not exist"));
  EXPECT_FALSE(result{}.return_value<int>());
}

TEST_F(return_value_test, one_that_is_damaged_is_an_error_with_the_file) {
  auto x = fit(losses, returning{});
  auto folder = run_path() / "return_values" / "0";
  auto bytes = bytes_of(folder / "rank_1.bin");
  bytes.back() ^= 1;
  write_bytes(folder / "rank_1.bin", bytes);
  auto damaged = x.return_value<std::vector<double>>(1);
  ASSERT_FALSE(damaged);
  EXPECT_EQ(damaged.error().code, ec::corrupt);
  EXPECT_THAT(damaged.error().message, HasSubstr("rank_1.bin has checksum"));
  EXPECT_TRUE(x.return_value<std::vector<double>>(0));
  // An earlier version left no manifest.
  bytes.back() ^= 1;
  write_bytes(folder / "rank_1.bin", bytes);
  fs::remove(folder / "rank_1.manifest.json");
  EXPECT_TRUE(x.return_value<std::vector<double>>(1));
}

TEST_F(return_value_test, is_that_of_the_last_attempt) {
  auto x = fit(losses, returning{.fails_at = 0});
  ASSERT_FALSE(x.error) << x.error->message;
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_EQ(x.return_value<std::vector<double>>(rank).value().at(1), 1);
}

TEST_F(return_value_test, one_that_is_too_large_fails_its_rank) {
  auto x = fit(too_much);
  ASSERT_TRUE(x.error);
  EXPECT_THAT(x.error->message, HasSubstr("the limit is"));
}

TEST_F(return_value_test, a_closure_returns_one_too) {
  train_options options{
    .scaling = {.num_workers = 2, .where = placement::in_process},
    .run = config()};
  int base = 40;
  auto x = data_parallel_trainer{in_process_loop{[base](train_context& c) {
                                   return base + c.rank();
                                 }},
                                 std::move(options)}
             .fit();
  ASSERT_FALSE(x.error) << x.error->message;
  EXPECT_EQ(x.return_value<int>(1).value(), 41);
}

// The driver died when the ranks had ended: no rank runs again.
TEST_F(return_value_test, survives_the_driver) {
  {
    auto dead = run_store::open(resolve(config())).value();
    auto attempt = dead->begin_attempt().value().attempt;
    report_batch batch{.values = {{{"step", 7}}, {{"step", 7}}},
                       .parts = {{}, {}},
                       .step_s = {0, 0}};
    ASSERT_TRUE(dead->append(attempt, batch, {}, 0));
    ASSERT_TRUE(dead->append_event("stop_decided", attempt,
                                   {{"reason", "it was good enough"}}));
    rank_facts facts;
    facts.run_path = dead->path().string();
    facts.attempt = attempt;
    returned_value<std::vector<double>>::write(facts, {3, 4});
  }
  auto x = fit(losses, returning{});
  ASSERT_FALSE(x.error) << x.error->message;
  EXPECT_EQ(x.stop_reason, "it was good enough");
  EXPECT_THAT(x.return_value<std::vector<double>>().value(), ElementsAre(3, 4));
}

} // namespace troupe::internal::test
