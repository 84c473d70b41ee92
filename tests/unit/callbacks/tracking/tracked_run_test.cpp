#include "troupe/callbacks/tracking/tracked_run.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include <cereal/archives/json.hpp>
#include <cereal/types/string.hpp>

using namespace troupe;
using namespace troupe::internal;

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

TEST(config_values_test, reads_numbers_that_are_not_finite) {
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

TEST(config_values_test, replaces_invalid_utf8) {
  EXPECT_EQ(config_values("{\"config\":{\"lr\":0.1,\"path\":\"d\xe9j\xe0\","
                          "\"last\":true}}"),
            (metrics{{"lr", 0.1},
                     {"path", "d\xef\xbf\xbdj\xef\xbf\xbd"},
                     {"last", true}}));
}

TEST(config_values_test, ignores_what_is_not_an_object) {
  EXPECT_TRUE(config_values("").empty());
  EXPECT_TRUE(config_values("[1,2]").empty());
  EXPECT_TRUE(config_values("{\"a\":").empty());
}
