#pragma once

#include "troupe/callbacks/comet/comet_backend.hpp"
#include "troupe/callbacks/comet/comet_settings.hpp"

namespace troupe {

/// Writes archives that `comet upload` takes: `<key>.zip` for the first life of
/// an experiment that ends, `<key>-<n>.zip` with what came after for each one
/// that follows. Until its end a life's messages lie in a file beside it.
class comet_archive final : public comet_backend {
public:
  comet_archive(comet_settings settings, std::vector<std::string> tags,
                const tracked_run& run);

  sink_result start(const std::string& state) override;
  sink_result send(std::span<const comet_message> messages) override;
  std::size_t room() override;
  sink_result finish(std::chrono::system_clock::time_point time) override;
  std::string state() const override;

  /// Of the archive that is being written, or was written last.
  fs::path path() const;

private:
  fs::path messages_path() const;
  expected<void> restore_messages();
  std::string experiment_json(std::int64_t end_ms) const;
  std::string line_of(const comet_message& x, std::uint64_t id) const;

  comet_settings settings_;
  std::vector<std::string> tags_;
  std::int64_t start_ms_ = 0;
  std::stop_token over_;
  std::uint64_t number_ = 0; ///< Of the archive.
  std::uint64_t size_ = 0;   ///< Confirmed bytes of the messages.
  std::uint64_t count_ = 0;  ///< Messages.
  bool packed_ = false;
};

/// The archives of the experiment of *settings*, sorted by name.
expected<std::vector<fs::path>> comet_archives(const comet_settings& settings);

} // namespace troupe
