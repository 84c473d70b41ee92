#include "troupe/trainers/torch/files/safetensors.hpp"

#include <csignal>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/python.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/trainers/torch/files/tensor_examples.hpp"
#include "troupe/trainers/torch/files/whole_file.hpp"
#include "troupe/trainers/train_context.hpp"

namespace {

int umask_calls = 0;

} // namespace

/// Stands in for that of the C library, and counts.
extern "C" mode_t umask(mode_t mask) noexcept {
  ++umask_calls;
  return static_cast<mode_t>(::syscall(SYS_umask, mask));
}

using namespace troupe;
using namespace troupe::internal;
using testing::AllOf;
using testing::HasSubstr;

namespace {

class safetensors_test : public testing::Test {
protected:
  /// Message of the error that *f* throws.
  template <class F>
  static error reason(F f) {
    try {
      f();
      return {};
    } catch (const train_error& x) {
      return x.reason();
    }
  }

  test::temporary_folder folder_;
  fs::path path_ = folder_ / "x.safetensors";
};

void expect_equal(const tensor_map& found, const tensor_map& expected) {
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_EQ(found.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(found.at(name).equal(tensor)) << name;
  }
}

struct network : torch::nn::Module {
  network() {
    first = register_module("first", torch::nn::Linear(3, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
  }
  torch::nn::Linear first{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

/// Stands for a data-parallel model.
struct wrapper {
  std::shared_ptr<network> inner = std::make_shared<network>();
  network& module() const { return *inner; }
};

} // namespace

TEST_F(safetensors_test, leaves_the_mask_of_the_process_alone) {
  auto before = ::umask(027);
  umask_calls = 0;
  save_safetensors(path_, tensor_map{{"x", torch::ones({2})}});
  EXPECT_EQ(umask_calls, 0) << "files of other threads would be for everyone";
  ::umask(before);
  struct stat facts {};
  ASSERT_EQ(::stat(path_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0640u);
}

TEST_F(safetensors_test, maps_files_that_are_larger_than_memory) {
  auto file = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_NE(file, -1);
  auto made = ::ftruncate(file, off_t{1} << 40);
  ::close(file);
  if (made != 0)
    GTEST_SKIP() << "this file system has no sparse file of 1 TiB";
  std::ifstream policy{"/proc/sys/vm/overcommit_memory"};
  if (policy.get() == '2')
    GTEST_SKIP() << "this system reserves memory for every mapping";
  auto mapped = mapped_file::open(path_);
  ASSERT_TRUE(mapped) << mapped.error().message;
  EXPECT_EQ((*mapped)->bytes().size(), std::size_t{1} << 40);
}

TEST_F(safetensors_test, waits_for_no_pipe_in_its_place) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  auto mapped = mapped_file::open(path_);
  ASSERT_FALSE(mapped);
  EXPECT_EQ(mapped.error().message,
            path_.string() + " cannot be read: it is not a file");
}

TEST_F(safetensors_test, returns_what_was_saved) {
  auto tensors = test::tensor_examples();
  save_safetensors(path_, tensors, {{"epoch", "3"}});
  expect_equal(load_safetensors(path_), tensors);
  EXPECT_EQ(load_safetensors_metadata(path_), (file_metadata{{"epoch", "3"}}));
}

TEST_F(safetensors_test, keeps_types_that_only_new_readers_know) {
  tensor_map tensors;
  for (auto type : {at::kUInt16, at::kUInt32, at::kUInt64, at::kFloat8_e5m2,
                    at::kFloat8_e4m3fn, at::kFloat8_e5m2fnuz,
                    at::kFloat8_e4m3fnuz, at::kFloat8_e8m0fnu})
    tensors[c10::toString(type)] = at::tensor({1, 2, 4}).to(type);
  save_safetensors(path_, tensors);
  auto loaded = load_safetensors(path_);
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(loaded[name].scalar_type(), tensor.scalar_type());
    EXPECT_TRUE(loaded[name].view(at::kByte).equal(tensor.view(at::kByte)))
      << name;
  }
}

TEST_F(safetensors_test, writes_a_map_without_tensors) {
  save_safetensors(path_, tensor_map{});
  EXPECT_TRUE(load_safetensors(path_).empty());
}

TEST_F(safetensors_test, aligns_every_tensor) {
  save_safetensors(path_, {{"a", at::ones({3}, at::kByte)},
                           {"b", at::ones({1}, at::kDouble)},
                           {"c", at::ones({3}, at::kHalf)}});
  for (const auto& [name, x] : load_safetensors(path_))
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(x.data_ptr()) % x.element_size(),
              0u);
}

TEST_F(safetensors_test, reads_tensors_that_are_not_aligned) {
  std::string json = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[1,5]},)"
                     R"("b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  std::string bytes(1, static_cast<char>(json.size()));
  bytes +=
    std::string(7, '\0') + json + '\x07' + std::string("\0\0\x80\x3f", 4);
  test::write_bytes(path_, bytes);
  auto loaded = load_safetensors(path_);
  EXPECT_EQ(loaded["a"].item<float>(), 1.0f);
  EXPECT_EQ(loaded["b"].item<int>(), 7);
}

TEST_F(safetensors_test, changes_no_file_when_a_loaded_tensor_is_written_to) {
  save_safetensors(path_, {{"a", at::ones({3})}});
  auto before = test::bytes_of(path_);
  auto loaded = load_safetensors(path_);
  loaded["a"].fill_(7);
  EXPECT_TRUE(loaded["a"].equal(at::full({3}, 7.0f)));
  EXPECT_EQ(test::bytes_of(path_), before);
}

TEST_F(safetensors_test, keeps_loaded_tensors_when_the_file_is_replaced) {
  save_safetensors(path_, {{"a", at::ones({100'000})}});
  auto old = load_safetensors(path_);
  save_safetensors(path_, {{"a", at::zeros({3})}});
  EXPECT_TRUE(old["a"].equal(at::ones({100'000})));
  fs::remove(path_);
  EXPECT_TRUE(old["a"].equal(at::ones({100'000})));
}

TEST_F(safetensors_test, writes_more_pieces_than_one_call_takes) {
  tensor_map tensors;
  for (int i = 0; i < 3000; ++i)
    tensors[std::to_string(i)] = at::full({i % 3}, i);
  save_safetensors(path_, tensors);
  expect_equal(load_safetensors(path_), tensors);
}

TEST_F(safetensors_test, saves_and_loads_a_model) {
  network saved;
  saved.first->weight.data().fill_(2);
  saved.norm->running_mean.fill_(3);
  save_safetensors(path_, saved);
  EXPECT_THAT(load_safetensors(path_), testing::SizeIs(7));
  network loaded;
  load_safetensors(path_, loaded);
  expect_equal(named_tensors(loaded), named_tensors(saved));
  EXPECT_TRUE(loaded.first->weight.requires_grad());
}

TEST_F(safetensors_test, looks_through_wrappers_holders_and_pointers) {
  auto pointer = std::make_shared<network>();
  save_safetensors(path_, pointer);
  wrapper wrapped;
  load_safetensors(path_, wrapped);
  expect_equal(named_tensors(wrapped), named_tensors(*pointer));
  torch::nn::Sequential holder{torch::nn::Linear{2, 2}};
  save_safetensors(path_, holder);
  EXPECT_TRUE(load_safetensors(path_).contains("0.weight"));
  load_safetensors(path_, holder);
}

TEST_F(safetensors_test, saves_and_loads_a_torchscript_module) {
  torch::jit::Module script{"m"};
  script.register_parameter("weight", at::ones({2}), /*is_buffer=*/false);
  script.register_buffer("mean", at::zeros({2}));
  save_safetensors(path_, script);
  script.attr("weight").toTensor().data().fill_(5);
  load_safetensors(path_, script);
  EXPECT_TRUE(script.attr("weight").toTensor().equal(at::ones({2})));
}

TEST_F(safetensors_test, lists_all_names_that_do_not_fit) {
  network model;
  auto tensors = named_tensors(model);
  tensors.erase("norm.bias");
  tensors["first.weight"] = at::ones({4, 2});
  tensors["extra"] = at::ones({1});
  tensors["norm.weight"] = at::full({4}, 9.0);
  save_safetensors(path_, tensors);
  EXPECT_THAT(reason([&] { load_safetensors(path_, model); }).message,
              AllOf(HasSubstr("missing: norm.bias"),
                    HasSubstr("unexpected: extra"),
                    HasSubstr("first.weight (saved [4, 2], expected [4, 3])")));
  EXPECT_TRUE(model.norm->weight.equal(at::ones({4})))
    << "something was copied";
  tensors.erase("first.weight");
  save_safetensors(path_, tensors);
  load_safetensors(path_, model, {.strict = false});
  EXPECT_TRUE(model.norm->weight.equal(at::full({4}, 9.0f)));
}

TEST_F(safetensors_test, keeps_a_model_and_more_apart_by_prefix) {
  network saved;
  auto tensors = named_tensors(saved, "model.");
  tensors["optimizer.lr"] = at::ones({});
  save_safetensors(path_, tensors);
  network loaded;
  load_safetensors(path_, loaded, {.prefix = "model."});
  expect_equal(named_tensors(loaded), named_tensors(saved));
}

TEST_F(safetensors_test, names_the_path_that_cannot_be_used) {
  for (const auto& path : {folder_ / "none/x", folder_.path()}) {
    for (auto& x : {reason([&] {
                      save_safetensors(path, {{"a", at::ones({1})}});
                    }),
                    reason([&] { load_safetensors(path); })}) {
      EXPECT_EQ(x.code, ec::storage);
      EXPECT_THAT(x.message, HasSubstr(path.string()));
    }
  }
}

TEST_F(safetensors_test, leaves_the_old_file_if_a_save_fails) {
  save_safetensors(path_, {{"a", at::ones({3})}});
  auto before = test::bytes_of(path_);
  // The file size limit stands for a full disk.
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  auto* handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  auto x = reason([&] {
    save_safetensors(path_, {{"a", at::ones({10'000})}});
  });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(x.code, ec::storage);
  EXPECT_EQ(test::bytes_of(path_), before);
  EXPECT_EQ(std::distance(fs::directory_iterator{folder_.path()}, {}), 1);
}

TEST_F(safetensors_test, says_what_is_wrong_with_a_damaged_file) {
  save_safetensors(path_, {{"a", at::ones({100})}});
  auto whole = test::bytes_of(path_);
  test::write_bytes(path_, whole.substr(0, whole.size() - 1));
  auto x = reason([&] { load_safetensors(path_); });
  EXPECT_EQ(x.code, ec::corrupt);
  EXPECT_THAT(x.message, AllOf(HasSubstr(path_.string()), HasSubstr("'a'")));
  test::write_bytes(path_, "");
  EXPECT_EQ(reason([&] { load_safetensors(path_); }).code, ec::corrupt);
}

TEST_F(safetensors_test, refuses_tensors_that_the_format_lacks) {
  EXPECT_EQ(
    reason([&] {
      save_safetensors(path_, {{"z", at::ones({1}, at::kComplexFloat)}});
    }).code,
    ec::unsupported);
  EXPECT_THAT(reason([&] {
                save_safetensors(path_, {{"u", at::Tensor{}}});
              }).message,
              HasSubstr("'u' is undefined"));
  EXPECT_TRUE(reason([&] {
    save_safetensors(path_, {{"__metadata__", at::ones({1})}});
  }));
  EXPECT_TRUE(reason([&] {
    save_safetensors(path_, {{"\xff", at::ones({1})}});
  }));
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(safetensors_test, writes_what_python_reads) {
  TROUPE_NEEDS_PYTHON();
  save_safetensors(path_, test::tensor_examples(), {{"epoch", "3"}});
  auto done = test::run_python(R"(
import sys, torch
from safetensors import safe_open
with safe_open(sys.argv[1], framework="pt") as f:
    assert f.metadata() == {"epoch": "3"}, f.metadata()
    x = {k: f.get_tensor(k) for k in f.keys()}
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
assert torch.equal(x["channels_last"], torch.arange(24.).view(1, 2, 3, 4))
assert torch.equal(x["shared_a"], base) and torch.equal(x["shared_b"], base)
assert x["expanded"].tolist() == [1] * 5
assert x["parameter"].tolist() == [0.25, 0.25]
assert len(x) == 20, len(x)
)",
                               {path_.string()});
  EXPECT_EQ(done.exit_code, 0) << done.output;
}

TEST_F(safetensors_test, reads_what_python_writes) {
  TROUPE_NEEDS_PYTHON();
  auto done = test::run_python(R"(
import sys, torch
from safetensors.torch import save_file
base = torch.arange(6).view(2, 3)
save_file({"f": base.float(), "b": base.bool(), "bf": base.bfloat16(), "h": base.half(), "l": base,
           "s": torch.tensor(2.5, dtype=torch.float64), "e": torch.empty(0, 3)}, sys.argv[1], {"by": "python"})
)",
                               {path_.string()});
  ASSERT_EQ(done.exit_code, 0) << done.output;
  auto base = at::arange(6).view({2, 3});
  expect_equal(load_safetensors(path_),
               {{"f", base.to(at::kFloat)},
                {"b", base.to(at::kBool)},
                {"bf", base.to(at::kBFloat16)},
                {"h", base.to(at::kHalf)},
                {"l", base},
                {"s", at::scalar_tensor(2.5, at::kDouble)},
                {"e", at::empty({0, 3})}});
  EXPECT_EQ(load_safetensors_metadata(path_),
            (file_metadata{{"by", "python"}}));
}
