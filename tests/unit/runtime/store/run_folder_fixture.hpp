#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/checkpoint_files.hpp"
#include "tests/support/mentions.hpp"
#include "tests/support/store_batch.hpp"
#include "tests/support/temporary_folder.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/store/run_folder.hpp"
#include "troupe/runtime/store/run_store.hpp"

namespace troupe::internal::test {

/// A run without options, on an empty disk.
class run_folder_test : public testing::Test {
protected:
  expected<std::unique_ptr<run_store>> open() {
    run_config config;
    config.name = "r";
    config.storage_path = storage.path();
    return run_store::open(config);
  }

  /// Report *index* of the driver *who*, with a checkpoint if *file*.
  expected<void> report(run_store& store, std::uint64_t attempt,
                        std::uint64_t index, const char* who,
                        bool file = false) {
    report_batch batch;
    if (file)
      batch = stage_batch(run, attempt, index,
                          std::string{"c"} + who + std::to_string(index),
                          {{{"weights", who}}}, {{"who", std::string{who}}})
                .value();
    else
      batch = {index, {{{"who", std::string{who}}}}, {std::nullopt}};
    return test::store_batch(store, attempt, batch).map([](auto&&) {});
  }

  static std::vector<std::string> files_in(const fs::path& folder) {
    std::vector<std::string> result;
    for (auto& x : fs::directory_iterator{folder})
      result.push_back(x.path().filename().string());
    std::ranges::sort(result);
    return result;
  }

  /// Whose reports the journal has, in order; "?" for a damaged line.
  std::string writers() {
    auto reader = journal_reader::open(run / "journal.jsonl").value();
    std::string result;
    for (;;) {
      auto entry = reader.next();
      if (!entry)
        result += '?';
      else if (!*entry)
        return result;
      else if (auto row = std::get_if<journaled_batch>(&**entry))
        result += to_string(row->values[0].at("who"));
    }
  }

  /// As on storage where a lock holds on one host only: the files are there,
  /// and another host finds none of them locked.
  void forget_locks() {
    for (auto& x : fs::directory_iterator{run / "attempts"}) {
      auto text = bytes_of(x.path());
      fs::remove(x.path());
      write_bytes(x.path(), text);
    }
    fs::remove(run / "lock");
    fs::remove(run / "ranks");
  }

  temporary_folder storage;
  fs::path run = storage / "r";
};

} // namespace troupe::internal::test
