#include <chrono>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "troupe/trainers/torch/groups/abortable_group.hpp"
#include "troupe/trainers/torch/groups/c10d_groups.hpp"

namespace troupe::internal {

namespace {

using namespace std::chrono_literals;

/// Calls a function during its calls, and notes where it is destroyed.
class watched_group : public c10d::Backend {
public:
  explicit watched_group(std::thread::id& ended_on)
    : Backend(0, 1), ended_on_(ended_on) {}
  ~watched_group() override { ended_on_ = std::this_thread::get_id(); }

  const std::string getBackendName() const override { return "watched"; }

  std::uint64_t getSequenceNumberForGroup() override {
    meanwhile();
    return 0;
  }

  void setTimeout(std::chrono::milliseconds) override { meanwhile(); }

  c10::intrusive_ptr<c10d::Work>
  allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override {
    meanwhile();
    return c10::make_intrusive<broken_work>();
  }

  std::function<void()> meanwhile;

private:
  struct broken_work : c10d::Work {
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
      throw std::runtime_error{"no future"};
    }
  };

  std::thread::id& ended_on_;
};

// Its destructor may wait for peers.
TEST(abortable_group_test, no_caller_destroys_what_an_abort_released) {
  const std::function<void(c10d::Backend&)> calls[]{
    [](auto& group) { group.getSequenceNumberForGroup(); },
    [](auto& group) { group.setTimeout(1s); },
    [](auto& group) {
      std::vector<at::Tensor> x{at::ones({1})};
      EXPECT_THROW(group.allreduce(x, c10d::AllreduceOptions{}),
                   std::runtime_error);
    }};
  for (auto& call : calls) {
    std::thread::id ended_on;
    auto inner = c10::make_intrusive<watched_group>(ended_on);
    auto& meanwhile = inner->meanwhile;
    auto group =
      c10::make_intrusive<abortable_group>(std::move(inner), nullptr);
    meanwhile = [&] {
      group->abort();
      EXPECT_TRUE(group_reaper::drain(20s));
    };
    call(*group);
    EXPECT_TRUE(group_reaper::drain(20s));
    EXPECT_NE(ended_on, std::thread::id{});
    EXPECT_NE(ended_on, std::this_thread::get_id());
  }
}

} // namespace

} // namespace troupe::internal
