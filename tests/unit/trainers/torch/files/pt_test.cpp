#include "troupe/trainers/torch/files/pt.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/python.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/trainers/torch/files/tensor_examples.hpp"
#include "troupe/trainers/train_context.hpp"

using namespace troupe;
using namespace troupe::internal;
using testing::HasSubstr;

namespace {

class pt_test : public testing::Test {
protected:
  error load_failure() {
    try {
      load_pt(path_, trusted_source{});
      return {};
    } catch (const train_error& x) {
      return x.reason();
    }
  }

  test::temporary_folder folder_;
  fs::path path_ = folder_ / "x.pt";
};

} // namespace

TEST_F(pt_test, returns_what_was_saved) {
  auto tensors = test::tensor_examples();
  save_pt(path_, tensors);
  auto loaded = load_pt(path_, trusted_source{});
  EXPECT_EQ(loaded.size(), tensors.size());
  for (const auto& [name, tensor] : tensors)
    EXPECT_TRUE(loaded.at(name).equal(tensor)) << name;
}

TEST_F(pt_test, writes_only_the_part_of_a_storage_that_a_tensor_uses) {
  save_pt(path_, {{"a", at::zeros({1'000'000}).narrow(0, 0, 1)}});
  EXPECT_LT(fs::file_size(path_), 10'000u);
}

TEST_F(pt_test, refuses_a_file_that_holds_something_else) {
  EXPECT_EQ(load_failure().code, ec::storage);
  test::write_bytes(path_, "no archive");
  auto x = load_failure();
  EXPECT_EQ(x.code, ec::corrupt);
  EXPECT_THAT(x.message, HasSubstr(path_.string()));
  auto list = torch::pickle_save(at::ones({2}));
  test::write_bytes(path_, {list.begin(), list.end()});
  EXPECT_THAT(load_failure().message, HasSubstr("Tensor"));
}

TEST_F(pt_test, names_the_path_that_cannot_be_written) {
  try {
    save_pt(folder_ / "none/x.pt", tensor_map{});
    FAIL() << "nothing was thrown";
  } catch (const train_error& x) {
    EXPECT_EQ(x.reason().code, ec::storage);
    EXPECT_THAT(x.reason().message, HasSubstr("none/x.pt"));
  }
}

TEST_F(pt_test, writes_what_python_loads_with_weights_only) {
  TROUPE_NEEDS_PYTHON();
  auto tensors = test::tensor_examples();
  tensors.merge(named_tensors(torch::nn::BatchNorm1d{2}, "norm."));
  save_pt(path_, tensors);
  auto done = test::run_python(R"(
import sys, torch
x = torch.load(sys.argv[1], weights_only=True)
assert type(x) is dict
for name, dtype in dict(Bool=torch.bool, Byte=torch.uint8, Char=torch.int8, Short=torch.int16, Int=torch.int32,
                        Long=torch.int64, BFloat16=torch.bfloat16, Half=torch.float16, Float=torch.float32,
                        Double=torch.float64).items():
    t = x["type_" + name]
    assert t.dtype == dtype and t.tolist() == [[0, 1, 0], [1, 0, 1]], (name, t)
assert x["scalar"].shape == () and x["scalar"] == 3.5
assert x["empty"].shape == (0, 4)
base = torch.arange(12.).view(3, 4)
assert torch.equal(x["transposed"], base.t())
assert torch.equal(x["slice"], base[:, 1:3])
assert torch.equal(x["shared_a"], base) and torch.equal(x["shared_b"], base)
assert x["expanded"].tolist() == [1] * 5
assert x["parameter"].tolist() == [0.25, 0.25]
torch.nn.BatchNorm1d(2).load_state_dict({k[5:]: v for k, v in x.items() if k.startswith("norm.")})
assert len(x) == 25, len(x)
)",
                               {path_.string()});
  EXPECT_EQ(done.exit_code, 0) << done.output;
}

TEST_F(pt_test, reads_what_python_saves) {
  TROUPE_NEEDS_PYTHON();
  auto done = test::run_python(R"(
import sys, torch
torch.save(dict(torch.nn.Linear(2, 1).state_dict(), x=torch.arange(3)), sys.argv[1])
)",
                               {path_.string()});
  ASSERT_EQ(done.exit_code, 0) << done.output;
  auto loaded = load_pt(path_, trusted_source{});
  EXPECT_EQ(loaded.at("weight").sizes(), (std::vector<std::int64_t>{1, 2}));
  EXPECT_TRUE(loaded.at("x").equal(at::arange(3)));
}
