#include "text.h"
#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

std::string Format(const char *format, ...)
{
  char         text[2048];
  std::va_list args;

  va_start(args, format);
  std::vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  return text;
}

std::string Cell(const char *format, PetscLogDouble value, bool known)
{
  char text[64];

  std::snprintf(text, sizeof(text), format, value);
  return known ? text : "";
}

/*
  Writes a file beside and gives it the name when all of it is there: the file that was there before stays until then. What is no
  ordinary file, a terminal or a pipe, is written to as it is.
*/
PetscErrorCode WriteFile(const std::string &path, const std::string &text)
{
  std::error_code   error;
  const bool        link     = std::filesystem::is_symlink(path, error);
  const std::string target   = link ? std::filesystem::weakly_canonical(path, error).string() : path;
  const bool        ordinary = !std::filesystem::exists(target, error) || std::filesystem::is_regular_file(target, error);
  const std::string beside   = ordinary ? target + ".new" : path;

  PetscFunctionBeginUser;
  errno                    = 0;
  std::FILE *const file    = std::fopen(beside.c_str(), "w");
  const bool       written = file && std::fputs(text.c_str(), file) >= 0;
  const bool       closed  = file && !std::fclose(file);
  const bool       named   = written && closed && (!ordinary || !std::rename(beside.c_str(), target.c_str()));
  const int        why     = errno;
  if (!named && file && ordinary) std::remove(beside.c_str());
  PetscCheck(named, PETSC_COMM_SELF, PETSC_ERR_FILE_WRITE, "Cannot write \"%s\": %s", path.c_str(), std::strerror(why));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------- what stands above every result ------------------------------- */

PetscErrorCode OutputFromOptions(Output *output)
{
  char json[PETSC_MAX_PATH_LEN] = "", md[PETSC_MAX_PATH_LEN] = "", commit[256] = FINEPC_COMMIT;

  PetscFunctionBeginUser;
  PetscOptionsBegin(PETSC_COMM_WORLD, nullptr, "Results", "");
  PetscCall(PetscOptionsString("-json", "File for the results as JSON", "", json, json, sizeof(json), nullptr));
  PetscCall(PetscOptionsString("-md", "File for the table in Markdown", "", md, md, sizeof(md), nullptr));
  PetscCall(PetscOptionsString("-commit", "Commit to name in the results", "", commit, commit, sizeof(commit), nullptr));
  PetscOptionsEnd();
  output->json_file = json;
  output->md_file   = md;
  output->commit    = commit;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static std::string Now()
{
  const std::time_t now = std::time(nullptr);
  char              text[64];

  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

static std::string PetscVersionText()
{
  return std::to_string(PETSC_VERSION_MAJOR) + "." + std::to_string(PETSC_VERSION_MINOR) + "." +
         std::to_string(PETSC_VERSION_SUBMINOR);
}

static PetscMPIInt Ranks()
{
  PetscMPIInt size = 1;

  (void)MPI_Comm_size(PETSC_COMM_WORLD, &size);
  return size;
}

std::string MachineText(const std::string &program, const Backend &backend, const Output &output)
{
  const int   size = Ranks();
  std::string text = Format("%s: backend %s, %s", program.c_str(), backend.cuda ? "cuda" : "host", backend.device.c_str());

  if (backend.cuda && !backend.petsc) text += " (PETSc has no CUDA: matrices of the host are sent)";
  if (!backend.driver.empty()) text += ", driver " + backend.driver;
  text += Format(", %d %s", size, size == 1 ? "rank" : "ranks");
  if (backend.copy_gbs > 0) text += Format(", copy %.0f GB/s", backend.copy_gbs);
  return text + Format(", PETSc %s, commit %s, %s.\n", PetscVersionText().c_str(), output.commit.c_str(), Now().c_str());
}

Json MachineJson(const std::string &program, const Backend &backend, const Output &output)
{
  Json json;

  json["program"]   = program;
  json["date"]      = Now();
  json["commit"]    = output.commit;
  json["petsc"]     = PetscVersionText();
  json["backend"]   = backend.cuda ? "cuda" : "host";
  json["device"]    = backend.device;
  json["driver"]    = backend.driver;
  json["ranks"]     = Ranks();
  json["copy_GBps"] = Rounded(backend.copy_gbs);
  return json;
}

/* ------------------------------------------ Markdown ------------------------------------------ */

std::string MarkdownHeader(const std::vector<Column> &columns)
{
  std::string titles = "|", rule = "|";

  for (const auto &column : columns) {
    titles += Format(" %*s |", column.width, column.title);
    rule += column.width < 0 ? ":" + std::string((size_t)(1 - column.width), '-') + "|"
                             : std::string((size_t)(column.width + 1), '-') + ":|";
  }
  return titles + "\n" + rule + "\n";
}

std::string MarkdownCells(const std::vector<Column> &columns, const std::vector<std::string> &cells)
{
  std::string row = "|";

  for (size_t k = 0; k < cells.size(); k++) {
    std::string cell = cells[k];

    std::replace(cell.begin(), cell.end(), '|', '/'); /* a bar would end the cell */
    row += Format(" %*s |", columns[k].width, cell.c_str());
  }
  return row + "\n";
}

/* -------------------------------------------- JSON -------------------------------------------- */

double Rounded(double value, int digits)
{
  return std::strtod(Format("%.*g", digits, value).c_str(), nullptr);
}

Json RoundedAll(const std::vector<double> &values, int digits)
{
  Json json = Json::array();

  for (const double value : values) json.push_back(Rounded(value, digits));
  return json;
}

/* Texts may hold bytes that are not UTF-8, such as those of an error message that was cut: they are replaced. */
PetscErrorCode WriteJson(const std::string &path, const Json &json)
{
  PetscFunctionBeginUser;
  PetscCall(WriteFile(path, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"));
  PetscFunctionReturn(PETSC_SUCCESS);
}
