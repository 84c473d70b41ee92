#pragma once

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include <troupe/torch.hpp>

/// `--name value` options of an example, and `--gpu`. A wrong one ends the
/// program with a sentence.
class command_line {
public:
  command_line(int argc, char** argv) {
    for (int i = 1; i < argc; i += 2) {
      if (std::string{argv[i]} == "--gpu") {
        gpu_ = true;
        --i; // It has no value.
        continue;
      }
      if (!is_name(argv[i]))
        fail(std::string{"expected '--option value', got '"} + argv[i] + "'");
      if (i + 1 == argc || is_name(argv[i + 1]))
        fail(std::string{argv[i]} + " has no value");
      values_[argv[i]] = argv[i + 1];
    }
  }

  std::string text(const std::string& name, const std::string& otherwise) {
    auto found = values_.extract(name);
    return found ? found.mapped() : otherwise;
  }

  int number(const std::string& name, int otherwise) {
    auto value = real(name, otherwise);
    if (!(std::abs(value) <= 1e9) || value != std::floor(value))
      fail(name + " takes a whole number");
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

  /// `--workers`, and with `--gpu` a GPU for each; then there are as many
  /// workers as GPUs, unless the user says otherwise.
  troupe::scaling_config scaling() {
    if (!gpu_)
      return {.num_workers = number("--workers", 2)};
    // Before the first tensor: it loads the CUDA part of LibTorch.
    auto gpus = troupe::gpu_count();
    if (gpus == 0)
      fail("--gpu: LibTorch shows this process no GPU (it needs its CUDA part, "
           "a driver, and a card that CUDA_VISIBLE_DEVICES does not hide)");
    return {.num_workers = number("--workers", gpus), .use_gpu = true};
  }

  /// Ends the program if an option was not asked for.
  void finish() const {
    if (!values_.empty())
      fail("there is no option '" + values_.begin()->first + "'");
  }

private:
  static bool is_name(const std::string& x) { return x.rfind("--", 0) == 0; }

  [[noreturn]] static void fail(const std::string& what) {
    std::fprintf(stderr, "%s\n", what.c_str());
    std::exit(2);
  }

  std::map<std::string, std::string> values_;
  bool gpu_ = false;
};
