#pragma once

#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <troupe/sweep.hpp>

#include "tests/support/temporary_folder.hpp"

namespace troupe::internal::test {

/// What a sweep of a test varies, and what its trials do.
struct settings {
  double lr = 0;
  int width = 1;
  int reports = 3;
  int fails_from = 1000; // width from which a trial fails
  std::string go;        // trials of width 3 wait until this file is there
  std::string metric = "loss";
  std::string ballast; // a file with which trials of width 2 fill the disk

  void validate() const {
    if (width == 13)
      throw std::invalid_argument{"width: 13 brings bad luck"};
  }

  TROUPE_FIELDS(lr, width, reports, fails_from, go, metric, ballast)
};

/// The loss goes down to `lr` from `lr + 1`.
void train(train_context& context, const settings& cfg);

/// A sweep on GPUs that this process, a child of a test, pretends to have. The
/// exit code.
int sweep_on_gpus(const fs::path& storage);

/// Sweeps in a storage folder of their own.
class sweep_test : public ::testing::Test {
public:
  static train_options options_in(const fs::path& storage) {
    return {.scaling = {.num_workers = 1},
            .run = {.name = "search",
                    .storage_path = storage,
                    .stop_timeout = std::chrono::milliseconds{300},
                    .quiet = true}};
  }

  static search_space widths(int last) {
    return {{"width", integers(1, last)}};
  }

protected:
  sweep_result search(search_space space, sweep_options options,
                      const settings& cfg = {}) {
    if (options.metric.empty())
      options.metric = "loss";
    return sweep{data_parallel_trainer{train, cfg, run()}, std::move(space),
                 std::move(options)}
      .fit();
  }

  train_options run() const { return options_in(storage_.path()); }

  static std::string message_of(const sweep_result& x) {
    return x.error ? x.error->message : "";
  }

  fs::path path() const { return storage_ / "search"; }

  temporary_folder storage_;
};

} // namespace troupe::internal::test
