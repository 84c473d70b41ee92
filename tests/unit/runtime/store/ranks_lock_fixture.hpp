#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/store/run_store.hpp"

namespace troupe::internal::test {

class ranks_lock_test : public testing::Test {
protected:
  expected<std::unique_ptr<run_store>> open() {
    run_config config;
    config.name = "r";
    config.storage_path = storage.path();
    return run_store::open(config);
  }

  temporary_folder storage;
  fs::path run = storage / "r";
};

/// The attempt that the run's file names.
inline std::uint64_t token_in(const fs::path& run) {
  return std::stoull(bytes_of(run / "ranks").substr(0, 16), nullptr, 16);
}

} // namespace troupe::internal::test
