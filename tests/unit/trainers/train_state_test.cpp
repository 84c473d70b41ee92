#include "troupe/trainers/train_state.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/support/checkpoint_files.hpp"
#include "tests/support/mentions.hpp"
#include "tests/support/temporary_folder.hpp"

namespace troupe::internal::test {
namespace {

using testing::ElementsAre;

/// A position in something; refuses one beyond its end.
struct reader {
  struct position {
    std::int64_t at = 0;

    template <class Archive>
    void serialize(Archive& ar) {
      ar(at);
    }
  };

  position state() const { return now; }
  void load_state(const position& x) {
    if (x.at > size)
      throw std::runtime_error{"position " + std::to_string(x.at)
                               + " is beyond the end"};
    now = x;
  }

  std::int64_t size = 10;
  position now;
};

/// Has a member that is not saved, and cannot be copied.
struct counter {
  explicit counter(int& events) : events(events) {}
  counter(const counter&) = delete;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(count);
  }

  int& events;
  int count = 0;
};

class train_state_test : public testing::Test {
protected:
  void SetUp() override { fs::create_directory(run / "checkpoints"); }

  staged_checkpoint new_files() {
    return staging::create(run.path(), 0, 0).value();
  }

  static checkpoint read(const staged_checkpoint& x) {
    return checkpoint::from_directory(x.path());
  }

  static error reason_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const train_error& x) {
      return x.reason();
    }
    return {};
  }

  temporary_folder run;
};

} // namespace

TEST_F(train_state_test, gives_every_object_back_what_was_saved) {
  int events = 0;
  counter steps{events};
  steps.count = 7;
  reader data;
  data.now.at = 4;
  int epoch = 3;
  std::map<std::string, std::vector<double>> curves{{"loss", {0.5, 0.25}}};
  train_state state{{"steps", steps}, {"data", data}, {"epoch", epoch}};
  state.add("curves", curves);
  auto files = new_files();
  state.save(files);
  EXPECT_THAT(names_below(files.path()),
              ElementsAre("curves.bin", "data.bin", "epoch.bin", "steps.bin"));

  steps.count = 0;
  data.now.at = 0;
  epoch = 0;
  curves.clear();
  state.load(read(files));
  EXPECT_EQ(steps.count, 7);
  EXPECT_EQ(data.now.at, 4);
  EXPECT_EQ(epoch, 3);
  EXPECT_EQ(curves.at("loss"), (std::vector<double>{0.5, 0.25}));
}

TEST_F(train_state_test, saves_and_loads_an_object_alone) {
  auto files = new_files();
  files.save("names", std::vector<std::string>{"a", "b"});
  std::vector<std::string> names;
  read(files).load("names", names);
  EXPECT_THAT(names, ElementsAre("a", "b"));
  auto twice = reason_of([&] { files.save("names", 1); });
  EXPECT_TRUE(mentions(twice, (files.path() / "names.bin").string()));
}

TEST_F(train_state_test, what_does_not_fit_names_its_file_and_changes_nothing) {
  auto files = new_files();
  files.save("epoch", 3);
  files.save("data", reader{.now = {.at = 4}});
  auto from = read(files);

  int epoch = 1;
  double rate = 0.5;
  reader data;
  train_state other{{"epoch", epoch}, {"data", data}, {"rate", rate}};
  auto missing = reason_of([&] { other.load(from); });
  EXPECT_EQ(missing.code, ec::invalid_argument);
  EXPECT_TRUE(mentions(missing, (from.path() / "rate.bin").string()));
  EXPECT_TRUE(mentions(missing, "but data.bin, epoch.bin")) << missing.message;

  std::int64_t wide = 1;
  train_state wider{{"data", data}, {"epoch", wide}};
  auto type = reason_of([&] { wider.load(from); });
  EXPECT_EQ(type.code, ec::invalid_argument);
  EXPECT_TRUE(mentions(type, (from.path() / "epoch.bin").string()));
  EXPECT_TRUE(mentions(type, "type int, not long")) << type.message;

  reader shorter{.size = 2};
  train_state end{{"epoch", epoch}, {"data", shorter}};
  auto refused = reason_of([&] { end.load(from); });
  EXPECT_TRUE(mentions(refused, (from.path() / "data.bin").string()));
  EXPECT_TRUE(mentions(refused, "beyond the end"));

  write_bytes(from.path() / "data.bin", "something else");
  train_state damaged{{"epoch", epoch}, {"data", data}};
  EXPECT_EQ(reason_of([&] { damaged.load(from); }).code, ec::corrupt);

  EXPECT_EQ(epoch, 1);
  EXPECT_EQ(wide, 1);
  EXPECT_EQ(data.now.at, 0);
  EXPECT_EQ(shorter.now.at, 0);
}

TEST_F(train_state_test, a_file_that_was_cut_is_corrupt) {
  auto files = new_files();
  std::vector<double> values{1, 2, 3};
  files.save("values", values);
  auto path = files.path() / "values.bin";
  auto bytes = bytes_of(path);
  for (auto& text : {bytes.substr(0, bytes.size() - 1), bytes + "x"}) {
    write_bytes(path, text);
    EXPECT_EQ(reason_of([&] { read(files).load("values", values); }).code,
              ec::corrupt);
    EXPECT_EQ(values, (std::vector<double>{1, 2, 3}));
  }
}

TEST_F(train_state_test, refuses_names_that_no_file_can_have) {
  int x = 0;
  for (auto name : {"", "a/b", "..", ".hidden", "a\nb"})
    EXPECT_THROW((train_state{{name, x}}), train_error) << name;
  EXPECT_THROW((train_state{{"x", x}, {"x", x}}), train_error);
}

} // namespace troupe::internal::test
