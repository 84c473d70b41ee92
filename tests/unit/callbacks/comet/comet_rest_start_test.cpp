// How a start makes or finds its experiment, and what it continues without.

#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/unit/callbacks/comet/comet_rest_fixture.hpp"

namespace troupe::internal::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST_F(comet_rest_test, continues_its_experiment_after_a_restart) {
  std::string state;
  {
    comet_sink x{options};
    ASSERT_TRUE(x.start(run, ""));
    state = x.state();
  }
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, state));
  auto row = record.report(0, {{{"a", 1}}});
  ASSERT_TRUE(x.log({&row, 1}));
  EXPECT_EQ(bodies("create").size(), 1u);
  EXPECT_EQ(bodies("parameter").size(), 2u) << "the config is sent once";
  EXPECT_EQ(bodies("metric").at(0).at("experimentKey"), "made");
}

TEST_F(comet_rest_test, makes_one_experiment_however_often_a_start_fails) {
  auto failures = 0;
  set_fault([&](const loopback_request& x) -> std::optional<loopback_reply> {
    if (!x.target.ends_with("parameter") || ++failures % 2 == 0)
      return std::nullopt;
    loopback_reply result;
    result.status = 503;
    return result;
  });
  comet_sink x{options};
  auto starts = 0;
  while (!x.start(run, "") && ++starts < 10) {
  }
  EXPECT_EQ(starts, 2);
  EXPECT_EQ(bodies("create").size(), 1u);
}

TEST_F(comet_rest_test, finds_its_experiment_although_the_reply_was_lost) {
  auto calls = 0;
  set_fault([&](const loopback_request& x) -> std::optional<loopback_reply> {
    if (!x.target.ends_with("create"))
      return std::nullopt;
    loopback_reply result;
    result.status = ++calls == 1 ? 503 : 400;
    result.body = R"({"msg":"the experiment key exists"})";
    return result;
  });
  comet_sink x{options};
  EXPECT_FALSE(x.start(run, ""));
  auto started = x.start(run, "");
  EXPECT_TRUE(started) << started.error().reason.message;
  EXPECT_EQ(bodies("tags").size(), 1u);
}

TEST_F(comet_rest_test, looks_for_its_experiment_again_after_a_failed_look) {
  auto creations = 0, looks = 0;
  set_fault([&](const loopback_request& x) -> std::optional<loopback_reply> {
    loopback_reply result;
    if (x.target.ends_with("create")) {
      result.status = ++creations == 1 ? 503 : 400;
      result.body = R"({"msg":"the experiment key exists"})";
      return result;
    }
    if (x.target.find("set-status") == x.target.npos || ++looks > 1)
      return std::nullopt;
    result.status = 429;
    result.headers["Retry-After"] = "7";
    return result;
  });
  comet_sink x{options};
  EXPECT_FALSE(x.start(run, ""));
  auto busy = x.start(run, "");
  ASSERT_FALSE(busy);
  EXPECT_EQ(busy.error().what, sink_failure::kind::transient);
  EXPECT_EQ(busy.error().retry_after, 7s);
  auto started = x.start(run, "");
  ASSERT_TRUE(started) << started.error().reason.message;
  EXPECT_EQ(looks, 2);
}

TEST_F(comet_rest_test, continues_without_a_refused_tag) {
  auto failures = 0;
  set_fault([&](const loopback_request& x) -> std::optional<loopback_reply> {
    if (!x.target.ends_with("tags"))
      return std::nullopt;
    loopback_reply result;
    if (x.body.find("\"a\"") != x.body.npos) {
      result.status = 400;
      result.body = R"({"msg":"no such tag"})";
      return result;
    }
    if (++failures > 1)
      return std::nullopt;
    result.status = 503;
    return result;
  });
  comet_sink x{options};
  EXPECT_FALSE(x.start(run, "")) << "at the tag b";
  auto started = x.start(run, "");
  ASSERT_TRUE(started) << started.error().reason.message;
  EXPECT_THAT(x.take_notes(),
              ElementsAre(AllOf(HasSubstr("tag 'a'"), HasSubstr("no such tag"),
                                Not(HasSubstr(secret)))));
  EXPECT_THAT(x.take_notes(), IsEmpty());
  auto tags = bodies("tags");
  EXPECT_EQ(tags.back().at("addedTags"), json::array({"b"}));
  auto count = tags.size();
  EXPECT_TRUE(x.start(run, x.state()));
  EXPECT_EQ(bodies("tags").size(), count) << "and not again";
  EXPECT_THAT(x.state(), HasSubstr("made"));
}

TEST_F(comet_rest_test, continues_without_refused_parameters_and_others) {
  run.config = {{"lr", 0.5}, {"prompt", "long"}, {"seed", 7}};
  auto failures = 0;
  set_fault([&](const loopback_request& x) -> std::optional<loopback_reply> {
    loopback_reply result;
    result.status = 400;
    result.body = R"({"msg":"too long"})";
    if (x.body.find("\"prompt\"") != x.body.npos
        || x.body.find("\"Name\"") != x.body.npos)
      return result;
    result.status = 503;
    if (x.body.find("\"seed\"") != x.body.npos && ++failures == 1)
      return result;
    return std::nullopt;
  });
  comet_sink x{options};
  EXPECT_FALSE(x.start(run, "")) << "at the seed";
  auto started = x.start(run, "");
  ASSERT_TRUE(started) << started.error().reason.message;
  EXPECT_THAT(x.take_notes(), ElementsAre(AllOf(HasSubstr("parameter 'prompt'"),
                                                HasSubstr("too long")),
                                          HasSubstr("refuses 1 more")));
  std::vector<std::string> names;
  for (auto& body : bodies("parameter"))
    names.push_back(body.at("parameterName"));
  EXPECT_THAT(names, ElementsAre("lr", "prompt", "seed", "seed"));
  auto row = record.report(0, {{{"a", 1}}});
  EXPECT_TRUE(x.log({&row, 1}));
}

TEST_F(comet_rest_test, names_one_of_many_refused_parameters) {
  run.config = metrics{};
  for (int i = 100; i < 200; ++i)
    run.config["p" + std::to_string(i)] = i;
  set_fault([](const loopback_request& x) -> std::optional<loopback_reply> {
    if (!x.target.ends_with("parameter"))
      return std::nullopt;
    loopback_reply result;
    result.status = 400;
    return result;
  });
  comet_sink x{options};
  ASSERT_TRUE(x.start(run, ""));
  EXPECT_THAT(x.take_notes(), ElementsAre(HasSubstr("parameter 'p100'"),
                                          HasSubstr("refuses 99 more")));
  EXPECT_TRUE(x.start(run, x.state()));
  EXPECT_THAT(x.take_notes(), IsEmpty());
}

TEST_F(comet_rest_test, sends_the_tags_after_a_start_that_failed_at_them) {
  auto failures = 0;
  set_fault([&](const loopback_request& x) -> std::optional<loopback_reply> {
    if (!x.target.ends_with("tags") || ++failures > 2)
      return std::nullopt;
    loopback_reply result;
    result.status = 503;
    return result;
  });
  comet_sink x{options};
  EXPECT_FALSE(x.start(run, ""));
  EXPECT_FALSE(x.start(run, ""));
  EXPECT_TRUE(x.start(run, ""));
  EXPECT_EQ(bodies("create").size(), 1u);
  EXPECT_EQ(bodies("tags").size(), 3u) << "until they are accepted";
  EXPECT_TRUE(x.start(run, ""));
  EXPECT_EQ(bodies("tags").size(), 3u) << "and not again";
}

} // namespace
} // namespace troupe::internal::test
