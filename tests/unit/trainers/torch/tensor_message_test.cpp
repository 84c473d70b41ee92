#include "troupe/trainers/torch/tensor_message.hpp"

#include <string>

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "troupe/trainers/train_error.hpp"

using namespace troupe;
using testing::HasSubstr;

namespace {

template <class F>
std::string refusal_of(F&& f) {
  try {
    f();
  } catch (const train_error& x) {
    EXPECT_EQ(x.reason().code, ec::invalid_argument);
    return x.what();
  }
  return "";
}

} // namespace

TEST(tensor_message_test, gives_the_same_tensor_without_a_copy) {
  auto x = at::rand({3, 5}, at::kDouble).requires_grad_();
  auto message = to_message(x);
  EXPECT_EQ(message.sizes, (std::vector<std::int64_t>{3, 5}));
  auto y = to_tensor(message);
  EXPECT_EQ(y.const_data_ptr(),
            static_cast<const void*>(message.elements.data()));
  message = {}; // The tensor keeps the memory.
  EXPECT_TRUE(y.equal(x));
  EXPECT_FALSE(y.requires_grad());
  for (auto type : {at::kBool, at::kByte, at::kHalf, at::kBFloat16, at::kInt,
                    at::kComplexFloat}) {
    auto one = at::ones({2}, type);
    auto same = to_tensor(to_message(one));
    EXPECT_EQ(same.scalar_type(), type);
    EXPECT_TRUE(same.equal(one));
  }
}

TEST(tensor_message_test, refuses_tensors_that_are_not_plain) {
  EXPECT_THAT(refusal_of([] { to_message({}); }), HasSubstr("undefined"));
  auto x = at::ones({2, 3});
  EXPECT_THAT(refusal_of([&] { to_message(x.t()); }),
              HasSubstr("Float [3, 2] that is not contiguous"));
  EXPECT_THAT(refusal_of([&] { to_message(x.to_sparse()); }),
              HasSubstr("sparse"));
  EXPECT_THAT(refusal_of([&] { to_message(x.to(at::kMeta)); }),
              HasSubstr("another device"));
}

TEST(tensor_message_test, refuses_messages_that_are_not_tensors) {
  auto with = [](auto change) {
    auto x = to_message(at::ones({2, 3}));
    change(x);
    return refusal_of([&] { to_tensor(x); });
  };
  EXPECT_EQ(with([](auto&) {}), "");
  EXPECT_THAT(with([](auto& x) { x.type = 250; }), HasSubstr("250"));
  EXPECT_THAT(with([](auto& x) { x.sizes[0] = -2; }), HasSubstr("[-2, 3]"));
  EXPECT_THAT(with([](auto& x) { x.sizes[0] = std::int64_t{1} << 62; }),
              HasSubstr("has no tensor"));
  EXPECT_THAT(with([](auto& x) { x.sizes[0] = 3; }),
              HasSubstr("24 bytes for Float [3, 3], which has 36"));
}
