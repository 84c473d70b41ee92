#include "troupe/callbacks/wandb/wandb_upload.hpp"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "troupe/callbacks/wandb/wandb_settings.hpp"
#include "troupe/runtime/process/redacted.hpp"
#include "troupe/runtime/storage/durable_file.hpp"

namespace troupe {

namespace {

constexpr std::size_t max_print = 16 * 1024 * 1024;

fs::path print_of(const wandb_fragment& x) {
  return x.path / "logs" / "upload.log";
}

// The last line that the client printed.
std::string last_words(const wandb_fragment& x) {
  std::istringstream in{read_file(print_of(x), max_print).value_or("")};
  std::string result;
  for (std::string line; std::getline(in, line);)
    if (!line.empty())
      result = line;
  return result;
}

// The client knows the key, and may print it.
void hide_secrets(const wandb_fragment& x, const std::string& key) {
  auto text = read_file(print_of(x), max_print);
  if (!text)
    return;
  if (auto clean = redacted(*text, key); clean != *text)
    (void) replace_file(print_of(x), clean);
}

std::vector<wandb_fragment> unsynced(std::vector<wandb_fragment> all) {
  std::erase_if(all, [](auto& x) { return x.is_synced(); });
  return all;
}

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (auto c : text)
    result += c == '\'' ? std::string{"'\\''"} : std::string{c};
  return result + "'";
}

} // namespace

std::string
wandb_upload::command_for(const std::vector<wandb_fragment>& fragments) {
  std::string result = "wandb sync --yes";
  for (auto& x : fragments)
    result += " " + quoted(x.path.string());
  return result;
}

std::string
wandb_upload::obstacle(const std::vector<wandb_fragment>& fragments) const {
  if (find_program(options_.program).empty())
    return "there is no program '" + options_.program
           + "' to upload the run with; with one (PyPI's `wandb`) and "
             "WANDB_API_KEY run: "
           + command_for(fragments);
  if (!has_wandb_key(options_))
    return "WANDB_API_KEY is not set and ~/.netrc does not know the service; "
           "with a key run: WANDB_API_KEY=<key> "
           + command_for(fragments);
  return {};
}

void wandb_upload::follow(const std::vector<wandb_fragment>& fragments) {
  follower_.reset();
  if (auto child = start({"beta", "sync", "--live", "--yes"}, fragments))
    follower_ = std::move(*child);
}

expected<void>
wandb_upload::finish(const std::vector<wandb_fragment>& fragments,
                     const std::stop_token& stop) {
  wait_time time;
  auto is_late = [&] { return time.passed() >= options_.finish_timeout; };
  if (follower_)
    follower_->wait(time, options_.finish_timeout, stop);
  follower_.reset();
  auto left = unsynced(fragments);
  if (!left.empty() && !stop.stop_requested() && !is_late()) {
    auto child = start({"sync", "--yes"}, left);
    if (!child)
      return tl::unexpected{child.error()};
    child->wait(time, options_.finish_timeout, stop);
    left = unsynced(left);
  }
  for (auto& x : fragments)
    hide_secrets(x, options_.api_key);
  if (left.empty())
    return {};
  auto late = is_late();
  return failure(stop.stop_requested() ? ec::stopped
                 : late                ? ec::timeout
                                       : ec::protocol,
                 "W&B's client has not uploaded " + std::to_string(left.size())
                   + " folder(s) of the run" + (late ? " in time" : "")
                   + "; it said last '"
                   + redacted(last_words(left.front()), options_.api_key)
                   + "'. Later: " + command_for(left));
}

expected<child_program>
wandb_upload::start(const std::vector<std::string>& words,
                    const std::vector<wandb_fragment>& fragments) {
  auto program = find_program(options_.program);
  if (program.empty())
    return failure(ec::unsupported, obstacle(fragments));
  std::vector<std::string> command{program.string()};
  command.insert(command.end(), words.begin(), words.end());
  for (auto& x : fragments)
    command.push_back(x.path.string());
  // Modes are ours by now, and an empty WANDB_RESUME breaks the client.
  child_program::changes environment{{"WANDB_MODE", ""}};
  if (auto resume = std::getenv("WANDB_RESUME"); resume && !*resume)
    environment["WANDB_RESUME"] = "";
  if (!options_.api_key.empty())
    environment["WANDB_API_KEY"] = options_.api_key;
  return child_program::start(command, environment,
                              print_of(fragments.front()));
}

} // namespace troupe
