"""What Excise did, and why: reports of single queries and an append-only log of all of them."""

from .log import AuditLog
from .log_read import describe, read_log
from .report import Report

__all__ = ["AuditLog", "Report", "describe", "read_log"]
