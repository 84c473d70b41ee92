#include <stdexcept>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include <troupe/train.hpp>

#include "numbers.hpp"
#include "shared_numbers.hpp"
#include "takes.hpp"
#include "troupe/runtime/process/descriptor.hpp"

namespace troupe::internal::bench {

namespace {

constexpr std::size_t rounds = 9;
constexpr std::size_t bytes = std::size_t{64} << 20;

struct config {
  std::string times;

  TROUPE_FIELDS(times)
};

void write_file(const fs::path& path, const std::string& data, bool sync) {
  unique_fd file{
    ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)};
  auto ok = file.get() >= 0
            && ::write(file.get(), data.data(), data.size())
                 == static_cast<ssize_t>(data.size())
            && (!sync || ::fsync(file.get()) == 0);
  if (!ok)
    throw std::runtime_error{"cannot write " + path.string()};
}

/// Makes both measurements start alike: with as many free pages as a file takes
/// (on a virtual machine the first use of a page costs more than writing it to
/// disk), and without pending writes.
void settle(const fs::path& folder, const std::string& data) {
  write_file(folder / "pages", data, false);
  fs::remove(folder / "pages");
  unique_fd any{::open(folder.c_str(), O_RDONLY | O_CLOEXEC)};
  if (::syncfs(any.get()) != 0)
    throw std::runtime_error{"cannot sync " + folder.string()};
}

double time_bare(const fs::path& folder, const std::string& data) {
  settle(folder, data);
  auto begin = now();
  write_file(folder / "bare", data, true);
  auto end = now();
  fs::remove(folder / "bare");
  return end - begin;
}

double time_checkpoint(train_context& context, const std::string& data) {
  settle(context.run_path(), data);
  context.barrier();
  auto begin = now();
  auto files = context.new_checkpoint();
  write_file(files.path() / "data", data, false);
  context.report({}, std::move(files));
  return now() - begin;
}

/// Rank 0 saves, rank 1 waits for it. `times` holds the seconds of each
/// checkpoint, then those of each bare file.
void loop(train_context& context, const config& cfg) {
  shared_numbers times{cfg.times, 2 * rounds};
  std::string data(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i)
    data[i] = static_cast<char>(i * 2654435761 >> 13);
  for (std::size_t round = 0; round < rounds; ++round) {
    if (context.rank() == 0) {
      times[rounds + round] = time_bare(context.run_path(), data);
      times[round] = time_checkpoint(context, data);
    } else {
      context.barrier();
      context.report({});
    }
  }
}

} // namespace

figure commit(workplace& place) {
  config cfg{place.new_path("times")};
  shared_numbers times{cfg.times, 2 * rounds};
  data_parallel_trainer{
    loop, cfg, {.scaling = {.num_workers = 2}, .run = place.new_run()}}
    .fit()
    .value_or_throw();
  constexpr auto gigabytes = bytes / 1e9;
  // The first round grows the page cache.
  return {gigabytes / median(times.part(1, rounds - 1)),
          gigabytes / median(times.part(rounds + 1, rounds - 1))};
}

} // namespace troupe::internal::bench
