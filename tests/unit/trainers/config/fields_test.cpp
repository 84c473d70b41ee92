#include "troupe/trainers/config/fields.hpp"

#include <cstdint>
#include <limits>
#include <sstream>

#include <cereal/archives/json.hpp>
#include <cereal/archives/portable_binary.hpp>
#include <gtest/gtest.h>

#include "troupe/trainers/train_loop.hpp"

namespace troupe::internal {

namespace {

enum class rule : std::uint8_t { sgd, adam = 3, last = 255 };

struct optimizer_fields {
  double lr = 0.1;
  rule kind = rule::adam;
  TROUPE_FIELDS(lr, kind)

  bool operator==(const optimizer_fields&) const = default;
};

struct all_fields {
  bool shuffle = true;
  std::uint64_t seed = std::numeric_limits<std::uint64_t>::max();
  std::int8_t low = -128;
  float clip = std::numeric_limits<float>::infinity();
  std::string note = "a \"b\"\n";
  fs::path data = "/data";
  optimizer_fields optimizer;
  std::optional<int> limit;
  std::optional<rule> other = rule::sgd;
  std::vector<bool> flags{true, false};
  std::vector<optimizer_fields> groups{{}, {0.2, rule::sgd}};
  std::array<int, 2> size{1, 2};
  std::map<std::string, double> weights{{"a", 0.5}};
  TROUPE_FIELDS(shuffle, seed, low, clip, note, data, optimizer, limit, other,
                flags, groups, size, weights)

  bool operator==(const all_fields&) const = default;
};

struct no_fields {
  TROUPE_FIELDS()
};

struct float_fields {
  float lr = 0.1f;
  std::vector<float> all{0.3f, -1e-10f, 16'777'216};
  float most = std::numeric_limits<float>::max();
  TROUPE_FIELDS(lr, all, most)
};

class hidden_fields {
public:
  TROUPE_FIELDS(lr_)

private:
  double lr_ = 0.5;
};

/// As users wrote configs before: cereal numbers the fields.
struct nameless {
  int steps = 3;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(steps);
  }
};

std::string text_of(const auto& config) {
  return train_loop::make<no_backend>(
           in_process_loop{[](train_context&, const auto&) {}}, no_backend{},
           config)
    .config_text;
}

} // namespace

TEST(fields_test, a_run_shows_their_names_and_values) {
  EXPECT_EQ(
    text_of(all_fields{}),
    R"({"config":{"shuffle":true,"seed":18446744073709551615,"low":-128,)"
    R"("clip":Infinity,"note":"a \"b\"\n","data":"/data",)"
    R"("optimizer":{"lr":0.1,"kind":"adam"},"limit":null,"other":"sgd",)"
    R"("flags":[true,false],)"
    R"("groups":[{"lr":0.1,"kind":"adam"},{"lr":0.2,"kind":"sgd"}],)"
    R"("size":[1,2],"weights":{"a":0.5}}})");
  EXPECT_EQ(text_of(no_fields{}), R"({"config":{}})");
  EXPECT_EQ(text_of(hidden_fields{}), R"({"config":{"lr_":0.5}})");
}

TEST(fields_test, an_enumerator_without_a_name_in_reach_is_a_number) {
  EXPECT_EQ(text_of(optimizer_fields{1, rule::last}),
            R"({"config":{"lr":1.0,"kind":"255"}})");
}

TEST(fields_test, floats_are_shown_as_they_were_written) {
  float_fields given;
  EXPECT_EQ(text_of(given),
            R"({"config":{"lr":0.1,"all":[0.3,-1e-10,16777216.0],)"
            R"("most":3.4028234663852886e+38}})");
  float_fields read{0, {}, 0};
  assign_config(read, to_config_value(given));
  EXPECT_EQ(read.lr, given.lr);
  EXPECT_EQ(read.all, given.all);
  EXPECT_EQ(read.most, given.most);
}

TEST(fields_test, a_config_without_names_shows_one_notice) {
  auto text = text_of(nameless{});
  EXPECT_EQ(text.find("value0"), text.npos);
  EXPECT_EQ(text.find(R"({"config":{"notice":"the fields of the config have)"),
            0u);
}

TEST(fields_test, travel_with_cereal) {
  all_fields given;
  given.optimizer.lr = 0.3;
  given.limit = 7;
  given.data = "/other";
  given.groups[1].kind = rule::last;
  std::stringstream bytes;
  cereal::PortableBinaryOutputArchive{bytes}(given);
  all_fields loaded;
  cereal::PortableBinaryInputArchive{bytes}(loaded);
  EXPECT_EQ(loaded, given);
}

TEST(fields_test, names_are_names_each_once) {
  EXPECT_TRUE(are_field_names(""));
  EXPECT_TRUE(are_field_names("lr"));
  EXPECT_TRUE(are_field_names("lr, epochs,seed_2"));
  EXPECT_FALSE(are_field_names("lr, lr"));
  EXPECT_FALSE(are_field_names("lr, optimizer.lr"));
  EXPECT_FALSE(are_field_names("lr,, seed"));
  EXPECT_FALSE(are_field_names("*lr"));
}

} // namespace troupe::internal
