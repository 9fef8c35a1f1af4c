#pragma once

/* Markdown tables and JSON, and what stands above every result: the machine, the versions, the commit. */

#include "bench.h"

extern std::string Format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* a number, or nothing where it was not measured */
extern std::string    Cell(const char *format, PetscLogDouble value, bool known);
extern std::string    MachineText(const std::string &program, const Backend &backend, const Output &output);
extern PetscErrorCode WriteFile(const std::string &path, const std::string &text);

struct Column {
  const char *title;
  int         width; /* minus: to the left */
};
extern std::string MarkdownHeader(const std::vector<Column> &columns);
extern std::string MarkdownCells(const std::vector<Column> &columns, const std::vector<std::string> &cells); /* a row */

/* Appends JSON to a string; the commas take care of themselves */
class JsonWriter {
public:
  std::string text;

  void Open(const char *key, char bracket);
  void Close(char bracket);
  void String(const char *key, const std::string &value);
  void Number(const char *key, double value);
  void Integer(const char *key, double value);
  void Bool(const char *key, bool value);
  void Numbers(const char *key, const std::vector<double> &values);

private:
  int depth = 0;

  void NewLine();
  void Key(const char *key);
};
extern void JsonMachine(JsonWriter *json, const std::string &program, const Backend &backend, const Output &output);
