#pragma once

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include <troupe/torch.hpp>

/// `--name value` or `--name=value` options of an example, `--gpu` and
/// `--help`. A wrong option ends the program with a sentence.
class command_line {
public:
  command_line(int argc, char** argv, const char* usage) {
    for (int i = 1; i < argc; ++i) {
      std::string given = argv[i];
      if (given == "--help" || given == "-h") {
        std::printf("usage: %s\n", usage);
        std::exit(0);
      }
      if (given == "--gpu") {
        gpu_ = true;
        continue;
      }
      if (!is_name(given))
        fail("expected '--option value', got '" + given + "'");
      auto sign = given.find('=');
      auto name = given.substr(0, sign);
      if (sign == given.npos && (i + 1 == argc || is_name(argv[i + 1])))
        fail(name + " has no value");
      auto value = sign == given.npos ? argv[++i] : given.substr(sign + 1);
      if (value.empty())
        fail(name + " has an empty value");
      values_[name] = value;
    }
  }

  std::string text(const std::string& name, const std::string& otherwise) {
    auto found = values_.extract(name);
    return found ? found.mapped() : otherwise;
  }

  /// A path; `~/` at its beginning is the user's home, also where the shell
  /// does not replace it.
  std::string folder(const std::string& name, const std::string& otherwise) {
    auto path = text(name, otherwise);
    if (!path.starts_with("~/"))
      return path;
    auto home = std::getenv("HOME");
    if (!home || *home == '\0')
      fail(name + ": HOME is not set, so that ~ has no meaning");
    return home + path.substr(1);
  }

  /// A whole number of at least *least*, at most a billion.
  int number(const std::string& name, int otherwise, int least) {
    auto value = real(name, otherwise);
    if (value > most)
      fail(name + " takes a number of at most " + std::to_string(most));
    if (value != std::floor(value))
      fail(name + " takes a whole number");
    if (value < least)
      fail(name + " takes a number of at least " + std::to_string(least));
    return static_cast<int>(value);
  }

  double real(const std::string& name, double otherwise) {
    auto value = text(name, "");
    if (value.empty())
      return otherwise;
    char* end = nullptr;
    auto result = std::strtod(value.c_str(), &end);
    if (*end != '\0')
      fail(name + " takes a number, got '" + value + "'");
    return result;
  }

  /// `--workers`, and with `--gpu` a GPU for each; by default there are then as
  /// many workers as GPUs.
  troupe::scaling_config scaling() {
    if (!gpu_)
      return {.num_workers = number("--workers", 2, 0)};
    // Before the first tensor: it loads the CUDA part of LibTorch.
    auto gpus = troupe::gpu_count();
    if (gpus == 0)
      fail("--gpu: LibTorch shows this process no GPU (it needs its CUDA part, "
           "a driver, and a card that CUDA_VISIBLE_DEVICES does not hide)");
    return {.num_workers = number("--workers", gpus, 0), .use_gpu = true};
  }

  /// Ends the program if there are unknown options.
  void finish() const {
    if (!values_.empty())
      fail("there is no option '" + values_.begin()->first + "'");
  }

private:
  static constexpr int most = 1'000'000'000;

  static bool is_name(const std::string& x) { return x.rfind("--", 0) == 0; }

  [[noreturn]] static void fail(const std::string& what) {
    std::fprintf(stderr, "%s\n", what.c_str());
    std::exit(2);
  }

  std::map<std::string, std::string> values_;
  bool gpu_ = false;
};
