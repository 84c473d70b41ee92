#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Environment variables that hold secrets, as names with `*` for any
/// characters. The only such list: rank processes do not get these variables
/// unless they are asked for, and their values are taken out of errors and of
/// logs that are uploaded.
inline constexpr auto secret_variables = std::to_array<std::string_view>({
  // In whatever program they are.
  "*_ACCESS_KEY",
  "*_ACCESS_KEY_ID",
  "*_ACCOUNT_KEY",
  "*_API_KEY",
  "*_APPLICATION_CREDENTIALS",
  "*_CONNECTION_STRING",
  "*_CREDENTIALS",
  "*_PASSPHRASE",
  "*_PASSWORD",
  "*_PRIVATE_KEY",
  "*_SAS",
  "*_SECRET",
  "*_SECRET_KEY",
  "*_TOKEN",
  // Of services whose secrets have other names.
  "AWS_*TOKEN*",
  "AWS_*SECRET*",
  "AZURE_*KEY*",
  "AZURE_*SECRET*",
  "GOOGLE_*KEY*",
  "MLFLOW_TRACKING_USERNAME",
});

/// Addresses of trackers, which may hold a login. Rank processes do not get
/// them either: only the driver's side talks to trackers. A text loses the
/// login in them by its place, not the address.
inline constexpr auto tracker_addresses = std::to_array<std::string_view>({
  "COMET_URL_OVERRIDE",
  "MLFLOW_TRACKING_URI",
  "WANDB_BASE_URL",
});

/// Whether *name* fits *pattern*, as those in `secret_variables`.
bool is_variable_of(std::string_view name, std::string_view pattern) noexcept;

/// Whether *name* is in `secret_variables`.
bool is_secret_variable(std::string_view name) noexcept;

/// What the secret variables of this process hold now.
std::vector<std::string> secret_values();

} // namespace troupe
