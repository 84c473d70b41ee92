#include "troupe/callbacks/wandb/wandb_options_json.hpp"

#include "troupe/callbacks/tracking/option_text.hpp"

namespace troupe {

namespace {

constexpr const char* wandb_mode_names[] = {"online", "offline", "disabled"};

std::optional<wandb_mode> wandb_mode_of(const std::string& name) {
  for (auto x : {wandb_mode::online, wandb_mode::offline, wandb_mode::disabled})
    if (name == wandb_mode_names[static_cast<int>(x)])
      return x;
  throw std::invalid_argument{"mode: '" + name + "' is none of W&B's"};
}

} // namespace

std::string to_json(const wandb_options& x) {
  nlohmann::json out{{"project", x.project},
                     {"entity", x.entity},
                     {"name", x.name},
                     {"group", x.group},
                     {"job_type", x.job_type},
                     {"notes", x.notes},
                     {"tags", x.tags},
                     {"run_id", x.run_id},
                     {"dir", x.dir.string()},
                     {"program", x.program},
                     {"finish_timeout_s", x.finish_timeout.count()},
                     {"console", x.console},
                     {"system_stats", x.system_stats},
                     {"ranks", text_of(x.ranks)},
                     {"non_finite", text_of(x.when_non_finite)}};
  if (x.mode)
    out["mode"] = wandb_mode_names[static_cast<int>(*x.mode)];
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

wandb_options wandb_options_from_json(const std::string& text) {
  auto in = nlohmann::json::parse(text);
  wandb_options x;
  read_option(in, "project", x.project);
  read_option(in, "entity", x.entity);
  read_option(in, "name", x.name);
  read_option(in, "group", x.group);
  read_option(in, "job_type", x.job_type);
  read_option(in, "notes", x.notes);
  read_option(in, "tags", x.tags);
  read_option(in, "run_id", x.run_id);
  std::string dir;
  read_option(in, "dir", dir);
  x.dir = dir;
  read_option(in, "program", x.program);
  auto seconds = x.finish_timeout.count();
  read_option(in, "finish_timeout_s", seconds);
  x.finish_timeout = std::chrono::seconds{seconds};
  read_option(in, "console", x.console);
  read_option(in, "system_stats", x.system_stats);
  read_option(in, "ranks", x.ranks);
  read_option(in, "non_finite", x.when_non_finite);
  if (std::string mode; read_option(in, "mode", mode), !mode.empty())
    x.mode = wandb_mode_of(mode);
  return x;
}

} // namespace troupe
