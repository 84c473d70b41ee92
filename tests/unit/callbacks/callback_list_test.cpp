#include "troupe/callbacks/callback_list.hpp"

#include <stdexcept>
#include <string>

#include <gmock/gmock.h>

#include "troupe/runtime/text.hpp"

namespace troupe::internal {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using call_log = std::vector<std::string>;

/// Writes down its calls; throws in the hook of the given name.
class recorder : public user_callback {
public:
  recorder(call_log& log, std::string name, std::string throws_in = {})
    : log_(log), name_(std::move(name)), throws_in_(std::move(throws_in)) {}

  void before_run(const run_context& run) override {
    note("before_run " + run.name);
  }

  void after_report(const run_context&, const std::vector<metrics>& values,
                    const std::optional<checkpoint>& data) override {
    note("after_report " + std::to_string(values.size()) + ' '
         + (data ? data->name() : "none"));
  }

  void after_exception(const run_context&,
                       const std::map<int, rank_failure>& failures) override {
    note("after_exception " + std::to_string(failures.begin()->first));
  }

  void after_run(const run_context&, const result& outcome) override {
    note("after_run " + std::to_string(outcome.attempts));
  }

private:
  void note(const std::string& call) {
    log_.push_back(name_ + ' ' + call);
    if (!throws_in_.empty() && call.starts_with(throws_in_))
      throw std::runtime_error("no space left");
  }

  call_log& log_;
  std::string name_;
  std::string throws_in_;
};

class thrower_of_odd_things : public user_callback {
  void before_run(const run_context&) override { throw 42; }
};

class callback_list_test : public testing::Test {
protected:
  void call_all(callback_list& list) {
    list.before_run(run);
    list.after_report(run, {{{"loss", 1}}, {}},
                      checkpoint::from_directory("/runs/r/checkpoints/best"));
    list.after_report(run, {{}}, std::nullopt);
    list.after_exception(run, {{3, {}}});
    result outcome;
    outcome.attempts = 2;
    list.after_run(run, outcome);
  }

  callback_done round(callback_list& list, const std::string& hook) {
    if (hook == "before_run")
      return list.before_run(run);
    if (hook == "after_report")
      return list.after_report(run, {{}}, std::nullopt);
    if (hook == "after_exception")
      return list.after_exception(run, {{0, {}}});
    return list.after_run(run, {});
  }

  run_context run{.name = "r"};
  call_log log;
};

const char* const hooks[] = {"before_run", "after_report", "after_exception",
                             "after_run"};

TEST_F(callback_list_test, CBM_2_calls_every_callback_in_order) {
  callback_list list{{std::make_shared<recorder>(log, "a"), nullptr,
                      std::make_shared<recorder>(log, "b")}};
  call_all(list);
  EXPECT_THAT(log, ElementsAre("a before_run r", "b before_run r",
                               "a after_report 2 best", "b after_report 2 best",
                               "a after_report 1 none", "b after_report 1 none",
                               "a after_exception 3", "b after_exception 3",
                               "a after_run 2", "b after_run 2"));
}

TEST_F(callback_list_test, UCB_1_a_callback_overrides_only_what_it_needs) {
  callback_list list{{std::make_shared<user_callback>()}};
  call_all(list);
  for (auto* hook : hooks)
    EXPECT_THAT(round(list, hook).failures, IsEmpty());
}

TEST_F(callback_list_test, CBM_4_an_exception_does_not_stop_the_other_calls) {
  for (auto* hook : hooks) {
    log.clear();
    callback_list list{{std::make_shared<recorder>(log, "a", hook),
                        std::make_shared<recorder>(log, "b")}};
    auto outcome = round(list, hook);
    EXPECT_EQ(log.size(), 2u) << hook;
    EXPECT_FALSE(outcome.abort);
    ASSERT_EQ(outcome.failures.size(), 1u);
    EXPECT_EQ(outcome.failures[0].code, ec::callback_failed);
    EXPECT_THAT(outcome.failures[0].message,
                testing::AllOf(HasSubstr("callback 1 ("), HasSubstr("recorder"),
                               HasSubstr(std::string{") threw in "} + hook
                                         + ": no space left")));
  }
}

TEST_F(callback_list_test, CBM_3_under_abort_a_round_still_calls_all) {
  for (std::string hook : hooks) {
    log.clear();
    callback_list list{{std::make_shared<recorder>(log, "a"),
                        std::make_shared<recorder>(log, "b", hook),
                        std::make_shared<recorder>(log, "c")},
                       callback_errors::abort};
    auto outcome = round(list, hook);
    EXPECT_EQ(log.size(), 3u) << hook;
    EXPECT_TRUE(outcome.abort);
    ASSERT_EQ(outcome.failures.size(), 1u);
    EXPECT_THAT(outcome.failures[0].message, HasSubstr("callback 2 ("));
  }
}

TEST_F(callback_list_test, CBM_4_under_abort_all_that_throw_are_named) {
  callback_list list{{std::make_shared<recorder>(log, "a", "after_run"),
                      std::make_shared<recorder>(log, "b", "after_run")},
                     callback_errors::abort};
  auto outcome = round(list, "after_run");
  EXPECT_EQ(outcome.failures.size(), 2u);
  EXPECT_TRUE(outcome.abort);
}

TEST_F(callback_list_test, cuts_long_messages_of_callbacks) {
  struct talker : user_callback {
    void before_run(const run_context&) override {
      throw std::runtime_error(std::string(1 << 20, 'x'));
    }
  };
  callback_list list{{std::make_shared<talker>()}};
  auto outcome = list.before_run(run);
  ASSERT_EQ(outcome.failures.size(), 1u);
  EXPECT_LT(outcome.failures[0].message.size(), 70'000u);
  EXPECT_THAT(outcome.failures[0].message, HasSubstr("… (cut; it has 1048"));
}

TEST_F(callback_list_test, removes_secrets_before_it_cuts) {
  struct talker : user_callback {
    void before_run(const run_context&) override {
      std::string filler(max_reason_size - 220, 'x');
      throw std::runtime_error(filler + " https://me:hunter2-"
                               + std::string(300, 'y') + "@host failed");
    }
  };
  callback_list list{{std::make_shared<talker>()}};
  auto outcome = list.before_run(run);
  ASSERT_EQ(outcome.failures.size(), 1u);
  EXPECT_THAT(outcome.failures[0].message,
              testing::AllOf(HasSubstr("https://***"),
                             testing::Not(HasSubstr("hunter2"))));
}

TEST_F(callback_list_test, catches_what_is_not_a_std_exception) {
  callback_list list{{std::make_shared<thrower_of_odd_things>()}};
  auto outcome = list.before_run(run);
  ASSERT_EQ(outcome.failures.size(), 1u);
  EXPECT_THAT(outcome.failures[0].message, HasSubstr("not a std::exception"));
}

TEST_F(callback_list_test, uses_the_name_that_a_callback_returns) {
  struct named : user_callback {
    explicit named(bool throws) : throws_name(throws) {}
    std::string name() const override {
      return throws_name ? throw std::runtime_error("none") : "dashboard";
    }
    void before_run(const run_context&) override {
      throw std::runtime_error("offline");
    }
    bool throws_name;
  };
  callback_list list{
    {std::make_shared<named>(false), std::make_shared<named>(true)}};
  auto outcome = list.before_run(run);
  ASSERT_EQ(outcome.failures.size(), 2u);
  EXPECT_EQ(outcome.failures[0].message,
            "callback 1 (dashboard) threw in before_run: offline");
  EXPECT_EQ(outcome.times[0].name, "dashboard");
  EXPECT_THAT(outcome.times[1].name, HasSubstr("named"));
}

TEST_F(callback_list_test, adds_up_the_time_of_each_callback) {
  std::vector<callback_time> totals;
  add_times(totals, {{"a", 1}, {"b", 2}});
  add_times(totals, {{"a", 3}, {"b", 0}});
  EXPECT_THAT(totals,
              ElementsAre(callback_time{"a", 4}, callback_time{"b", 2}));
}

TEST_F(callback_list_test, adds_the_time_of_those_that_were_not_left_behind) {
  std::vector<callback_time> totals{{"a", 1}, {"b", 2}, {"b", 3}};
  add_times(totals, {{"b", 4}});
  EXPECT_THAT(totals, ElementsAre(callback_time{"a", 1}, callback_time{"b", 2},
                                  callback_time{"b", 7}));
  add_times(totals, {{"new", 1}, {"a", 1}, {"b", 1}, {"b", 1}});
  EXPECT_THAT(totals, ElementsAre(callback_time{"a", 2}, callback_time{"b", 3},
                                  callback_time{"b", 8}));
}

TEST_F(callback_list_test, measures_the_time_that_callbacks_take) {
  callback_list::clock::time_point now;
  struct slow : user_callback {
    explicit slow(callback_list::clock::time_point& t) : now(t) {}
    void before_run(const run_context&) override { now += 20ms; }
    void after_run(const run_context&, const result&) override {
      now += 5ms;
      throw std::runtime_error("late");
    }
    callback_list::clock::time_point& now;
  };
  callback_list list{{std::make_shared<slow>(now), std::make_shared<slow>(now)},
                     callback_errors::log,
                     [&] { return now; }};
  auto first = list.before_run(run);
  EXPECT_DOUBLE_EQ(first.seconds, 0.04);
  ASSERT_EQ(first.times.size(), 2u);
  EXPECT_EQ(first.times[1].seconds, 0.02);
  EXPECT_THAT(first.times[1].name, HasSubstr("slow"));
  EXPECT_EQ(list.after_report(run, {{}}, std::nullopt).seconds, 0);
  EXPECT_DOUBLE_EQ(list.after_run(run, {}).seconds, 0.01);
}

} // namespace
} // namespace troupe::internal
