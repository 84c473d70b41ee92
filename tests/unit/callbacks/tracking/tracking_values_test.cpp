#include <gmock/gmock.h>

#include <cmath>
#include <sstream>

#include <cereal/archives/json.hpp>
#include <cereal/types/string.hpp>

#include "troupe/callbacks/tracking/backoff.hpp"
#include "troupe/callbacks/tracking/config_values.hpp"
#include "troupe/callbacks/tracking/make_sink.hpp"
#include "troupe/callbacks/tracking/row_values.hpp"

using namespace troupe;
using std::chrono::milliseconds;

TEST(backoff_test, doubles_up_to_its_limit_with_jitter) {
  backoff x{{milliseconds{100}, milliseconds{1000}}, 1};
  milliseconds bound{100};
  for (int i = 0; i < 20; ++i) {
    auto wait = x.next();
    EXPECT_GE(wait, bound / 2);
    EXPECT_LE(wait, bound);
    bound = std::min(bound * 2, milliseconds{1000});
  }
  x.reset();
  EXPECT_LE(x.next(), milliseconds{100});
}

TEST(backoff_test, honours_what_a_service_asks_for_within_reason) {
  backoff x{{}, 1};
  EXPECT_EQ(x.next(milliseconds{90'000}), milliseconds{90'000});
  EXPECT_EQ(x.next(std::chrono::hours{24}), milliseconds{600'000});
}

TEST(config_values_test, flattens_what_cereal_wrote) {
  auto values = config_values(
    R"({"config":{"lr":0.1,"layers":[{"size":64},{"size":10}],"name":"a b",)"
    R"("deep":{"er":{"on":true}},"none":null,"count":9007199254740993}})");
  EXPECT_EQ(values, (metrics{{"lr", 0.1},
                             {"layers/0/size", 64},
                             {"layers/1/size", 10},
                             {"name", "a b"},
                             {"deep/er/on", true},
                             {"none", "null"},
                             {"count", 9007199254740993}}));
}

TEST(config_values_test, knows_numbers_that_are_not_finite) {
  struct limits {
    double clip = INFINITY;
    double floor = -INFINITY;
    double unknown = NAN;
    double lr = 0.1;
    std::string note = "a \"NaN\" \\ -Infinity";
    void serialize(cereal::JSONOutputArchive& archive) {
      archive(CEREAL_NVP(clip), CEREAL_NVP(floor), CEREAL_NVP(unknown),
              CEREAL_NVP(lr), CEREAL_NVP(note));
    }
  };
  std::ostringstream out;
  cereal::JSONOutputArchive{out}(cereal::make_nvp("config", limits{}));
  auto values = config_values(out.str());
  EXPECT_EQ(values.at("clip"), metric_value{INFINITY});
  EXPECT_EQ(values.at("floor"), metric_value{-INFINITY});
  EXPECT_TRUE(std::isnan(values.at("unknown").number()));
  EXPECT_EQ(values.at("lr"), metric_value{0.1});
  EXPECT_EQ(values.at("note"), metric_value{limits{}.note});
}

TEST(config_values_test, replaces_in_a_text_what_is_not_utf8) {
  EXPECT_EQ(config_values("{\"config\":{\"lr\":0.1,\"path\":\"d\xe9j\xe0\","
                          "\"last\":true}}"),
            (metrics{{"lr", 0.1},
                     {"path", "d\xef\xbf\xbdj\xef\xbf\xbd"},
                     {"last", true}}));
}

TEST(config_values_test, makes_nothing_of_what_is_no_object) {
  EXPECT_TRUE(config_values("").empty());
  EXPECT_TRUE(config_values("[1,2]").empty());
  EXPECT_TRUE(config_values("{\"a\":").empty());
}

TEST(row_values_test, shows_the_first_the_mean_or_each_rank) {
  history_row row;
  row.values = {{{"loss", 1.0}, {"name", "x"}}, {{"loss", 3}, {"other", true}}};
  EXPECT_EQ(values_of(row, rank_values::first), row.values[0]);
  EXPECT_EQ(values_of(row, rank_values::mean),
            (metrics{{"loss", 2.0}, {"name", "x"}, {"other", 1.0}}));
  EXPECT_EQ(values_of(row, rank_values::each),
            (metrics{{"loss", 1.0},
                     {"name", "x"},
                     {"rank_0/loss", 1.0},
                     {"rank_0/name", "x"},
                     {"rank_1/loss", 3},
                     {"rank_1/other", true}}));
  EXPECT_TRUE(values_of({}, rank_values::mean).empty());
}

TEST(make_sink_test, knows_its_trackers_only) {
  auto none = make_sink("carrier_pigeon", "{}");
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, testing::HasSubstr("carrier_pigeon"));
}
