"""The values that FIX 4.4 allows for each field with a closed list of values, without what they mean.

A row is the name of a field and its values; a row may continue on the next line, which is indented. `dictionary` reads
the rows. Fields of the type Boolean have Y and N by their type, and
`message_table` has the values of MsgType.
"""

from __future__ import annotations

ALLOWED_VALUES = """
AdvSide: B S X T
AdvTransType: N C R
CommType: 1 2 3 4 5 6
ExecInst: 1 2 3 4 5 6 7 8 9 0 A B C D E F G H I J K L M N O P Q R S U V W X Y Z a b c d e
HandlInst: 1 2 3
SecurityIDSource: 1 2 3 4 5 6 7 8 9 A B C D E F G H I J
IOIQltyInd: L M H
IOIQty: S M L
IOITransType: N C R
LastCapacity: 1 2 3 4
OrdStatus: 0 1 2 3 4 6 7 8 9 A B C D E
OrdType: 1 2 3 4 6 7 8 9 D E G I J K L M P
Side: 1 2 3 4 5 6 7 8 9 A B C D E F G
TimeInForce: 0 1 2 3 4 5 6 7
Urgency: 0 1 2
SettlType: 0 1 2 3 4 5 6 7 8 9
AllocTransType: 0 1 2
PositionEffect: O C R F
ProcessCode: 0 1 2 3 4 5 6
AllocStatus: 0 1 2 3 4 5
AllocRejCode: 0 1 2 3 4 5 6 7 8 9 10 11 12 13
EmailType: 0 1 2
EncryptMethod: 0 1 2 3 4 5 6
CxlRejReason: 0 1 2 3 4 5 6 99
OrdRejReason: 0 1 2 3 4 5 6 7 8 9 10 11 13 14 15 99
IOIQualifier: A B C D I L M O P Q R S T V W X Y Z
DKReason: A B C D E F Z
MiscFeeType: 1 2 3 4 5 6 7 8 9 10 11 12
ExecType: 0 3 4 5 6 7 8 9 A B C D E F G H I
SettlCurrFxRateCalc: M D
SettlInstMode: 1 4 5
SettlInstTransType: N C R T
SettlInstSource: 1 2 3
SecurityType: EUSUPRA FAC FADN PEF SUPRA CORP CPP CB DUAL EUCORP XLINKD STRUCT YANK FOR CS PS BRADY EUSOV TBOND
    TINT TIPS TCAL TPRN UST USTB TNOTE TBILL REPO FORWARD BUYSELL SECLOAN SECPLEDGE TERM RVLV RVLVTRM BRIDGE LOFC
    SWING DINP DEFLTED WITHDRN REPLACD MATURED AMENDED RETIRED BA BN BOX CD CL CP DN EUCD EUCP LQN MTN ONITE PN PZFJ
    STN TD XCN YCD ABS CMBS CMO IET MBS MIO MPO MPP MPT PFAND TBA AN COFO COFP GO MT RAN REV SPCLA SPCLO SPCLT TAN
    TAXA TECP TRAN VRDN WAR MF MLEG NONE FUT OPT
StandInstDbType: 0 1 2 3 4
SettlDeliveryType: 0 1 2 3
AllocLinkType: 0 1
PutOrCall: 0 1
CoveredOrUncovered: 0 1
AllocHandlInst: 1 2 3
RoutingType: 1 2 3 4
StipulationType: AMT AUTOREINV BANKQUAL BGNCON COUPON CURRENCY CUSTOMDATE GEOG HAIRCUT INSURED ISSUE ISSUER
    ISSUESIZE LOOKBACK LOT LOTVAR MAT MATURITY MAXSUBS MINQTY MININCR MINDNOM PAYFREQ PIECES PMAX PPM PPL PPT PRICE
    PRICEFREQ PROD PROTECT PURPOSE PXSOURCE RATING REDEMPTION RESTRICTED SECTOR SECTYPE STRUCT SUBSFREQ SUBSLEFT
    TEXT TRDVAR WAC WAL WALA WAM WHOLE YIELD
YieldType: AFTERTAX ANNUAL ATISSUE AVGMATURITY BOOK CALL CHANGE CLOSE COMPOUND CURRENT GROSS GOVTEQUIV INFLATION
    INVERSEFLOATER LASTCLOSE LASTMONTH LASTQUARTER LASTYEAR LONGAVGLIFE MARK MATURITY NEXTREFUND OPENAVG PUT
    PREVCLOSE PROCEEDS SEMIANNUAL SHORTAVGLIFE SIMPLE TAXEQUIV TENDER TRUE VALUE1/32 WORST
SubscriptionRequestType: 0 1 2
MDUpdateType: 0 1
MDEntryType: 0 1 2 3 4 5 6 7 8 9 A B C
TickDirection: 0 1 2 3
QuoteCondition: A B C D E F G H I
TradeCondition: A B C D E F G H I J K L M N P Q R
MDUpdateAction: 0 1 2
MDReqRejReason: 0 1 2 3 4 5 6 7 8 9 A B C
DeleteReason: 0 1
OpenCloseSettlFlag: 0 1 2 3 4 5
FinancialStatus: 1 2
CorporateAction: A B C D E
QuoteStatus: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
QuoteCancelType: 1 2 3 4
QuoteRejectReason: 1 2 3 4 5 6 7 8 9 99
QuoteResponseLevel: 0 1 2
QuoteRequestType: 1 2
SecurityRequestType: 0 1 2 3
SecurityResponseType: 1 2 5 6
SecurityTradingStatus: 1 2 3 4 5 6 7 8 9 10 12 13 14 15 16 17 18 19 20 21 22 23
HaltReasonChar: I X P D E M
Adjustment: 1 2 3
TradSesMethod: 1 2 3
TradSesMode: 1 2 3
TradSesStatus: 0 1 2 3 4 5 6
MessageEncoding: ISO-2022-JP EUC-JP Shift_JIS UTF-8
SessionRejectReason: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 99
BidRequestTransType: N C
ExecRestatementReason: 0 1 2 3 4 5 6 7 8 9 10 99
BusinessRejectReason: 0 1 2 3 4 5 6 7
MsgDirection: S R
DiscretionInst: 0 1 2 3 4 5 6
BidType: 1 2 3
BidDescriptorType: 1 2 3
SideValueInd: 1 2
LiquidityIndType: 1 2 3 4
ProgRptReqs: 1 2 3
IncTaxInd: 1 2
BidTradeType: R G A J
BasisPxType: 2 3 4 5 6 7 8 9 A B C D Z
PriceType: 1 2 3 4 5 6 7 8 9 10 11
GTBookingInst: 0 1 2
ListStatusType: 1 2 3 4 5 6
NetGrossInd: 1 2
ListOrderStatus: 1 2 3 4 5 6 7
ListExecInstType: 1 2 3 4 5
CxlRejResponseTo: 1 2
MultiLegReportingType: 1 2 3
PartyIDSource: B C D E F G H 1 2 3 4 5 6 7 8 9 A I
PartyRole: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38
Product: 1 2 3 4 5 6 7 8 9 10 11 12 13
RoundingDirection: 0 1 2
DistribPaymentMethod: 1 2 3 4 5 6 7 8 9 10 11 12
CancellationRights: Y N M O
MoneyLaunderingStatus: Y N 1 2 3
ExecPriceType: B C D E O P Q S
PaymentMethod: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
TaxAdvantageType: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29
FundRenewWaiv: Y N
RegistStatus: A R H N
RegistRejReasonCode: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 99
RegistTransType: 0 1 2
OwnershipType: J T 2
ContAmtType: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
OwnerType: 1 2 3 4 5 6 7 8 9 10 11 12 13
OrderCapacity: A G I P R W
OrderRestrictions: 1 2 3 4 5 6 7 8 9 A
MassCancelRequestType: 1 2 3 4 5 6 7
MassCancelResponse: 0 1 2 3 4 5 6 7
MassCancelRejectReason: 0 1 2 3 4 5 6 99
QuoteType: 0 1 2 3
CashMargin: 1 2 3
Scope: 1 2 3
CrossType: 1 2 3 4
CrossPrioritization: 0 1 2
NoSides: 1 2
SecurityListRequestType: 0 1 2 3 4
SecurityRequestResult: 0 1 2 3 4 5
MultiLegRptTypeReq: 0 1 2
TradSesStatusRejReason: 1 99
TradeRequestType: 0 1 2 3 4
MatchStatus: 0 1 2
MatchType: A1 A2 A3 A4 A5 AQ S1 S2 S3 S4 S5 M1 M2 MT M3 M4 M5 M6
ClearingInstruction: 0 1 2 3 4 5 6 7 8 9 10 11 12 13
AccountType: 1 2 3 4 6 7 8
CustOrderCapacity: 1 2 3 4
MassStatusReqType: 1 2 3 4 5 6 7 8
DayBookingInst: 0 1 2
BookingUnit: 0 1 2
PreallocMethod: 0 1
AllocType: 1 2 5 7 8
ClearingFeeIndicator: B C E F H I L M 1 2 3 4 5 9
PriorityIndicator: 0 1
QuoteRequestRejectReason: 1 2 3 4 5 6 7 8 9 10 99
AcctIDSource: 1 2 3 4 5 99
ConfirmStatus: 1 2 3 4 5
ConfirmTransType: 0 1 2
DeliveryForm: 1 2
LegSwapType: 1 2 4 5
QuotePriceType: 1 2 3 4 5 6 7 8 9 10
QuoteRespType: 1 2 3 4 5 6
PosType: TQ IAS IES FIN SOD EX AS TX TA PIT TRF ETR ALC PA ASF DLV TOT XM SPL
PosQtyStatus: 0 1 2
PosAmtType: FMTM IMTM TVAR SMTM PREM CRES CASH VADJ
PosTransType: 1 2 3 4 5
PosMaintAction: 1 2 3
SettlSessID: ITD RTH ETH
AdjustmentType: 0 1 2 3
PosMaintStatus: 0 1 2 3 4
PosMaintResult: 0 1 99
PosReqType: 0 1 2 3
ResponseTransportType: 0 1
PosReqResult: 0 1 2 3 4 99
PosReqStatus: 0 1 2
SettlPriceType: 1 2
AssignmentMethod: R P
ExerciseMethod: A M
TradeRequestResult: 0 1 2 3 4 5 8 9 99
TradeRequestStatus: 0 1 2
TradeReportRejectReason: 0 1 2 3 4 99
SideMultiLegReportingType: 1 2 3
TrdRegTimestampType: 1 2 3 4 5
ConfirmType: 1 2 3
ConfirmRejReason: 1 2 99
BookingType: 0 1 2
AllocSettlInstType: 0 1 2 3 4
DlvyInstType: S C
TerminationType: 1 2 3 4
SettlInstReqRejCode: 0 1 2 99
AllocReportType: 3 4 5 8
AllocCancReplaceReason: 1 2 99
AllocAccountType: 1 2 3 4 6 7 8
PartySubIDType: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26
AllocIntermedReqType: 1 2 3 4 5 6
ApplQueueResolution: 0 1 2 3
ApplQueueAction: 0 1 2 3
AvgPxIndicator: 0 1 2
TradeAllocIndicator: 0 1 2
ExpirationCycle: 0 1
TrdType: 0 1 2 3 4 5 6 7 8 9 10
PegMoveType: 0 1
PegOffsetType: 0 1 2 3
PegLimitType: 0 1 2
PegRoundDirection: 1 2
PegScope: 1 2 3 4
DiscretionMoveType: 0 1
DiscretionOffsetType: 0 1 2 3
DiscretionLimitType: 0 1 2
DiscretionRoundDirection: 1 2
DiscretionScope: 1 2 3 4
TargetStrategy: 1 2 3
LastLiquidityInd: 1 2 3
ShortSaleReason: 0 1 2 3 4 5
QtyType: 0 1
TradeReportType: 0 1 2 3 4 5 6 7
AllocNoOrdersType: 0 1
EventType: 1 2 3 4 99
InstrAttribType: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 99
CPProgram: 1 2 99
MiscFeeBasis: 0 1 2
CollAsgnReason: 0 1 2 3 4 5 6 7
CollInquiryQualifier: 0 1 2 3 4 5 6 7
CollAsgnTransType: 0 1 2 3 4
CollAsgnRespType: 0 1 2 3
CollAsgnRejectReason: 0 1 2 3 4 5 99
CollStatus: 0 1 2 3 4
DeliveryType: 0 1 2 3
UserRequestType: 1 2 3 4
UserStatus: 1 2 3 4 5 6
StatusValue: 1 2 3 4
NetworkRequestType: 1 2 4 8
NetworkStatusResponseType: 1 2
TrdRptStatus: 0 1
AffirmStatus: 1 2 3
CollAction: 0 1 2
CollInquiryStatus: 0 1 2 3 4
CollInquiryResult: 0 1 2 3 4 5 6 7 8 9 99
"""
